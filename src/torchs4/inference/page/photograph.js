// A picture from a file: its middle square, made as small as the model's pictures.

import { Picture } from "./picture.js";

// As image libraries weigh red, green and blue.
const LUMINANCE = [0.299, 0.587, 0.114];

export function photograph(reader, { view }) {
  const pad = document.getElementById("pad");
  const picture = new Picture(reader, view);
  const show = (values) => picture.read(values);

  document.getElementById("file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    let image;
    try {
      image = await createImageBitmap(file);
    } catch {
      document.getElementById("lead").textContent = `${file.name} is no picture that this browser can read.`;
      return;
    }
    square(pad, image, pad.width);
    show(pixels(image, view));
  });
  document.getElementById("again").addEventListener("click", () => picture.values && show(picture.values));
  return show;
}

function pixels(image, { side, shift }) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  square(canvas, image, side);
  const { data } = canvas.getContext("2d").getImageData(0, 0, side, side);
  const values = new Float32Array(side ** 2 * shift.length);
  for (let pixel = 0; pixel < side ** 2; pixel += 1) {
    const colour = data.subarray(4 * pixel, 4 * pixel + 3);
    if (shift.length === 3) values.set(Array.from(colour, (value) => value / 255), 3 * pixel);
    else values[pixel] = Math.round(colour.reduce((sum, value, index) => sum + value * LUMINANCE[index], 0)) / 255;
  }
  return values;
}

function square(canvas, image, side) {
  const size = Math.min(image.width, image.height);
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.clearRect(0, 0, side, side);
  context.drawImage(image, (image.width - size) / 2, (image.height - size) / 2, size, size, 0, 0, side, side);
}
