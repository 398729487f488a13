// Curves of probabilities along what was read, drawn anew for every frame.

const ROOM = { left: 34, right: 12, top: 20, bottom: 38 };
// Of the whole: names of shorter stretches would only pile up.
const SHORTEST_NAMED = 0.02;

export class Chart {
  // unit: what the horizontal axis counts. perUnit: positions of one such unit.
  constructor(canvas, names, unit, perUnit = 1) {
    Object.assign(this, { canvas, names, unit, perUnit });
    this.begin(0);
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  begin(length) {
    this.length = length;
    this.rows = [];
  }

  add(position, values) {
    this.rows.push({ position, values });
    this.length = Math.max(this.length, position);
  }

  draw() {
    const { context, width, height } = fitted(this.canvas);
    const colours = themeColours();
    const x = (position) => ROOM.left + (position / (this.length || 1)) * (width - ROOM.left - ROOM.right);
    const y = (value) => height - ROOM.bottom - value * (height - ROOM.top - ROOM.bottom);
    this.#drawAxes(context, colours, x, y, width, height);
    if (this.rows.length === 0) return;
    const stretches = this.#stretches();
    const now = stretches.at(-1).leader;
    const lasting = stretches.filter(({ start, end }) => end - start >= SHORTEST_NAMED * this.length);
    const leaders = new Set(lasting.map(({ leader }) => leader));
    // More points than pixels would only cost time.
    const stride = Math.max(1, Math.floor(this.rows.length / (2 * width)));
    // Those that matter lie above the others.
    const rank = (index) => (index === now ? 2 : leaders.has(index) ? 1 : 0);
    const order = this.names.map((_, index) => index).sort((one, other) => rank(one) - rank(other));
    for (const index of order) {
      context.beginPath();
      this.rows.forEach(({ position, values }, row) => {
        if (row % stride === 0 || row === this.rows.length - 1) context.lineTo(x(position), y(values[index]));
      });
      context.strokeStyle = [colours.quiet, colours.blue, colours.red][rank(index)];
      context.globalAlpha = rank(index) ? 1 : 0.45;
      context.lineWidth = index === now ? 2.5 : 1.3;
      context.lineJoin = "round";
      context.stroke();
    }
    context.globalAlpha = 1;
    if (this.names.length > 1) this.#nameLeaders(context, colours, lasting, now, x, y);
  }

  #drawAxes(context, colours, x, y, width, height) {
    context.font = "12px system-ui, sans-serif";
    context.strokeStyle = colours.faint;
    context.fillStyle = colours.quiet;
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const [value, label] of [[0, "0"], [0.5, "½"], [1, "1"]]) {
      line(context, x(0), y(value), width - ROOM.right, y(value));
      context.fillText(label, ROOM.left - 8, y(value));
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const tick of ticks(this.length / this.perUnit)) {
      context.fillText(String(tick), x(tick * this.perUnit), height - ROOM.bottom + 6);
    }
    context.fillText(this.unit, (ROOM.left + width - ROOM.right) / 2, height - 14);
  }

  // Where which class led without a break, and its highest point there.
  #stretches() {
    const stretches = [];
    for (const { position, values } of this.rows) {
      const leader = values.indexOf(Math.max(...values));
      let last = stretches.at(-1);
      if (!last || last.leader !== leader) {
        last = { leader, start: last ? last.end : 0, end: position, top: position, value: -1 };
        stretches.push(last);
      }
      last.end = position;
      if (values[leader] > last.value) Object.assign(last, { top: position, value: values[leader] });
    }
    return stretches;
  }

  #nameLeaders(context, colours, stretches, now, x, y) {
    context.textBaseline = "bottom";
    for (const { leader, top, value } of stretches) {
      const share = top / this.length;
      context.textAlign = share > 0.97 ? "right" : share < 0.03 ? "left" : "center";
      context.font = `${leader === now ? "600 " : ""}13px system-ui, sans-serif`;
      context.fillStyle = leader === now ? colours.red : colours.blue;
      context.fillText(this.names[leader], x(top), y(value) - 3);
    }
  }
}

// A canvas as fine as the screen, emptied; what is drawn counts in CSS pixels.
export function fitted(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

export function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["card", "ink", "quiet", "faint", "blue", "red"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

// Round numbers up to the length, four to eight of them.
function ticks(length) {
  if (length <= 0) return [];
  const rough = length / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const count = Math.floor(length / step + 1e-9);
  return Array.from({ length: count + 1 }, (_, index) => Number((index * step).toPrecision(6)));
}
