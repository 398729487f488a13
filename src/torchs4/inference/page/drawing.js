// A pad to draw on, and MNIST's preparation of what was drawn.

import { themeColours } from "./chart.js";
import { paint, Picture } from "./picture.js";

// After the last stroke, before reading begins: people lift the pen within a digit.
const PAUSE_MILLISECONDS = 700;
const PEN = 0.075;
// MNIST's digits fit into 20 of 28 pixels and their strokes are about this wide there.
const BOX = 20 / 28;
const STROKE = 2.5 / 28;
// Of a pixel each way: their average is its grey.
const FINENESS = 8;
// Of the pad: something smaller, such as a dot, is not blown up any further.
const SMALLEST = 0.15;

export function drawing(reader, { view, examples }) {
  const pad = document.getElementById("pad");
  const picture = new Picture(reader, view);
  let strokes = [];
  let pen = null;
  let pause = 0;

  const redraw = () => {
    const context = pad.getContext("2d");
    context.clearRect(0, 0, pad.width, pad.height);
    stroke(context, strokes, (x, y) => [x * pad.width, y * pad.height], PEN * pad.width, themeColours().ink);
  };
  const point = (event) => {
    const box = pad.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  const clear = () => {
    clearTimeout(pause);
    strokes = [];
    redraw();
    picture.clear();
  };
  const show = (values) => {
    clearTimeout(pause);
    return picture.read(values);
  };

  pad.addEventListener("pointerdown", (event) => {
    if (pen !== null) return;
    pad.setPointerCapture(event.pointerId);
    pen = event.pointerId;
    clearTimeout(pause);
    // After one that was read to its end a new digit begins.
    if (document.body.dataset.state === "done") strokes = [];
    picture.clear();
    strokes.push([point(event)]);
    redraw();
  });
  pad.addEventListener("pointermove", (event) => {
    if (event.pointerId !== pen) return;
    const events = event.getCoalescedEvents?.() ?? [];
    for (const each of events.length ? events : [event]) strokes.at(-1).push(point(each));
    redraw();
  });
  for (const end of ["pointerup", "pointercancel"]) {
    pad.addEventListener(end, (event) => {
      if (event.pointerId !== pen) return;
      pen = null;
      pause = setTimeout(() => show(prepared(strokes, view.side)), PAUSE_MILLISECONDS);
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.getElementById("clear").addEventListener("click", clear);
  document.getElementById("again").addEventListener("click", () => picture.values && show(picture.values));

  const shelf = document.getElementById("examples");
  examples.forEach((text, index) => {
    const values = Float32Array.from(atob(text), (letter) => letter.charCodeAt(0) / 255);
    const button = document.createElement("button");
    const canvas = document.createElement("canvas");
    const name = reader.model.about.names[index];
    Object.assign(button, { type: "button", title: `read this ${name}` });
    button.setAttribute("aria-label", button.title);
    button.append(canvas);
    button.addEventListener("click", () => {
      strokes = [];
      redraw();
      show(values);
    });
    shelf.append(button);
    const fill = () => paint(canvas, values, view.side);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fill);
    fill();
  });
  return show;
}

function stroke(context, strokes, place, width, colour) {
  Object.assign(context, { lineCap: "round", lineJoin: "round", lineWidth: width, strokeStyle: colour });
  for (const points of strokes) {
    context.beginPath();
    context.moveTo(...place(...points[0]));
    // A line to where it is makes a dot.
    for (const point of points.length > 1 ? points.slice(1) : points) context.lineTo(...place(...point));
    context.stroke();
  }
}

// Strokes as MNIST has them: scaled into a box, drawn with its pen, the centre of their mass in the middle.
export function prepared(strokes, side) {
  const points = strokes.flat();
  const [left, top] = [0, 1].map((axis) => Math.min(...points.map((point) => point[axis])));
  const [right, bottom] = [0, 1].map((axis) => Math.max(...points.map((point) => point[axis])));
  const size = Math.max(right - left, bottom - top, SMALLEST);
  // The box holds the pen's width, too.
  const scale = ((BOX - STROKE) / size) * side * FINENESS;
  const fine = side * FINENESS;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = fine;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const drawn = (shiftX, shiftY) => {
    const place = (x, y) => [
      fine / 2 + (x - (left + right) / 2) * scale + shiftX,
      fine / 2 + (y - (top + bottom) / 2) * scale + shiftY,
    ];
    context.clearRect(0, 0, fine, fine);
    stroke(context, strokes, place, STROKE * fine, "#000000");
    return coarser(context.getImageData(0, 0, fine, fine).data, side);
  };
  const [x, y] = centreOfMass(drawn(0, 0), side);
  return drawn((side / 2 - x) * FINENESS, (side / 2 - y) * FINENESS);
}

// The average opacity within each pixel, rounded to one of 256 greys.
function coarser(data, side) {
  const values = new Float32Array(side ** 2);
  const fine = side * FINENESS;
  for (let y = 0; y < fine; y += 1) {
    for (let x = 0; x < fine; x += 1) {
      values[Math.floor(y / FINENESS) * side + Math.floor(x / FINENESS)] += data[4 * (y * fine + x) + 3];
    }
  }
  return values.map((sum) => Math.round(sum / FINENESS ** 2) / 255);
}

function centreOfMass(values, side) {
  let [mass, x, y] = [0, 0, 0];
  values.forEach((value, index) => {
    mass += value;
    x += value * ((index % side) + 0.5);
    y += value * (Math.floor(index / side) + 0.5);
  });
  return [x / mass, y / mass];
}
