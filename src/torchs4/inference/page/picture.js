// A square picture, read pixel by pixel.

import { themeColours } from "./chart.js";

const SECONDS = 6;
// What is still to come is shown this faintly.
const UNREAD = 0.22;

export class Picture {
  // view: the side of the picture, and shift and scale for each of its columns.
  constructor(reader, view) {
    this.reader = reader;
    this.view = view;
    this.values = null;
    this.canvas = document.getElementById("seen");
    this.canvas.width = this.canvas.height = view.side;
    this.caption = document.getElementById("seen-caption");
    this.words = this.caption.textContent;
    reader.told = (position) => this.#tell(position);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw(this.position));
    this.clear();
  }

  clear() {
    this.values = null;
    this.caption.textContent = this.words;
    this.draw(0);
    this.reader.clear();
  }

  // values: between 0 and 1, pixel after pixel, the columns of each pixel together.
  read(values) {
    const { shift, scale } = this.view;
    this.values = values;
    this.draw(0);
    const samples = values.map((value, index) => (value - shift[index % shift.length]) / scale[index % scale.length]);
    return this.reader.read(samples, SECONDS);
  }

  #tell(position) {
    const pixels = this.view.side ** 2;
    this.caption.textContent = position < pixels ? `pixel ${position} of ${pixels}` : `${pixels} pixels read`;
    this.draw(position);
  }

  draw(position) {
    this.position = position;
    const red = position > 0 && position < this.view.side ** 2 ? position - 1 : -1;
    paint(this.canvas, this.values, this.view.side, (pixel) => (pixel < position ? 1 : UNREAD), red);
  }
}

// Grey values are ink on paper, in the page's own colours; three columns are a colour.
export function paint(canvas, values, side, strength = () => 1, mark = -1) {
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  const image = context.createImageData(side, side);
  const colours = themeColours();
  const [paper, ink, red] = [colours.card, colours.ink, colours.red].map(parsed);
  const columns = values ? values.length / side ** 2 : 1;
  for (let pixel = 0; pixel < side ** 2; pixel += 1) {
    for (let channel = 0; channel < 3; channel += 1) {
      const value = values ? values[pixel * columns + (columns === 3 ? channel : 0)] : 0;
      const colour = columns === 3 ? 255 * value : paper[channel] + value * (ink[channel] - paper[channel]);
      const shown = paper[channel] + strength(pixel) * (colour - paper[channel]);
      image.data[4 * pixel + channel] = pixel === mark ? red[channel] : shown;
    }
    image.data[4 * pixel + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

function parsed(colour) {
  return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
}
