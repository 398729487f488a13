// Reads samples at a pace that people can follow, and shows what the model says meanwhile.

// A frame must leave time for drawing.
const FRAME_MILLISECONDS = 11;

export class Reader {
  // inChunks: whether a prediction for every chunk is enough. told: what to show after each frame besides.
  constructor(model, bars, chart, { inChunks = false, curves = (probabilities) => probabilities } = {}) {
    Object.assign(this, { model, bars, chart, inChunks, curves });
    this.samples = [];
    this.rows = [];
    this.turn = 0;
    this.told = () => {};
  }

  // Forgets everything; whatever is being read stops.
  clear(state = "ready") {
    this.turn += 1;
    this.rows = [];
    this.samples = [];
    this.bars.clear();
    this.chart.begin(1);
    this.chart.draw();
    document.body.dataset.state = state;
    return this.turn;
  }

  // Reads a whole sequence in so many seconds at the usual speed.
  async read(samples, seconds) {
    const turn = this.clear("reading");
    const length = samples.length / this.model.columns;
    this.samples = samples;
    this.chart.begin(length);
    const reading = this.model.begin({ inChunks: this.inChunks });
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let due = 0;
    let before = performance.now();
    while (reading.position < length) {
      const now = await nextFrame();
      due += still ? length : ((now - before) / 1000) * (length / seconds) * speed();
      before = now;
      const until = performance.now() + FRAME_MILLISECONDS;
      while (reading.position < Math.min(due, length) && performance.now() < until) {
        const rows = await reading.next(samples);
        if (turn !== this.turn) return;
        this.add(rows);
      }
      // A slow machine does not have to catch up.
      due = Math.min(due, reading.position + length / 60);
      this.show(reading.position);
    }
    document.body.dataset.state = "done";
  }

  add(rows) {
    for (const { position, probabilities } of rows) {
      this.rows.push(probabilities);
      this.chart.add(position, this.curves(probabilities, position));
    }
  }

  show(position) {
    if (this.rows.length) this.bars.show(this.rows.at(-1));
    this.chart.draw();
    this.told(position);
  }
}

function speed() {
  return 2 ** Number(document.getElementById("speed").value);
}

// A hidden tab has no frames, but may go on reading.
function nextFrame() {
  return new Promise((resolve) => {
    if (document.hidden) setTimeout(() => resolve(performance.now()), 16);
    else requestAnimationFrame(() => resolve(performance.now()));
  });
}
