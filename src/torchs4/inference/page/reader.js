// Reads samples at a pace that people can follow, and shows what the model says meanwhile.

// A frame must leave time for drawing.
const FRAME_MILLISECONDS = 11;

export class Reader {
  constructor(model, bars, chart) {
    Object.assign(this, { model, bars, chart });
    this.samples = [];
    this.rows = [];
    this.turn = 0;
    // What a view shows besides, after each frame.
    this.told = () => {};
    // Positions at the end that the curves do not reach.
    this.beyond = 0;
    // The points of the curves at a position, if it has some.
    this.curves = (probabilities) => probabilities;
  }

  // Forgets everything; whatever is being read stops.
  clear(state = "ready") {
    this.turn += 1;
    this.rows = [];
    this.samples = [];
    this.bars.clear();
    this.chart.begin(0);
    this.chart.draw();
    document.body.dataset.state = state;
    return this.turn;
  }

  // Reads a whole sequence in so many seconds at the usual speed.
  async read(samples, seconds) {
    const turn = this.clear("reading");
    const length = samples.length / this.model.columns;
    this.samples = samples;
    this.chart.begin(length - this.beyond);
    const reading = this.model.begin();
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
      const values = this.curves(probabilities, position);
      if (values) this.chart.add(position, values);
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
