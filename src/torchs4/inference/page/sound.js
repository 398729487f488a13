// A recording or a voice, at the model's own sampling rate.

import { fitted, themeColours } from "./chart.js";

// A short word is stretched so that eyes can follow, a long recording is read faster than it was spoken.
const [SHORTEST_SECONDS, LONGEST_SECONDS] = [3, 12];
const LONGEST_SPEECH_SECONDS = 30;

// Runs where the sound is: hands over what the microphone hears.
const LISTENER = `registerProcessor("listener", class extends AudioWorkletProcessor {
  process([input]) {
    if (input.length) this.port.postMessage(input[0].slice());
    return true;
  }
});`;

export function sound(reader) {
  const { model } = reader;
  const rate = model.about.sample_rate;
  const wave = new Wave(document.getElementById("wave"), reader);
  const lead = document.getElementById("lead");
  const button = document.getElementById("speak");
  let stop = null;

  const show = (samples) => {
    const seconds = Math.min(Math.max(samples.length / rate, SHORTEST_SECONDS), LONGEST_SECONDS);
    wave.samples = samples;
    return reader.read(samples, seconds);
  };

  document.getElementById("file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    stop?.();
    try {
      show(await decoded(await file.arrayBuffer(), rate));
    } catch (error) {
      lead.textContent = `${file.name} is no recording that this browser can read (${error.message}).`;
    }
  });
  document.getElementById("again").addEventListener("click", () => {
    stop?.();
    if (wave.samples.length) show(wave.samples);
  });
  button.addEventListener("click", async () => {
    if (stop) {
      stop();
      return;
    }
    try {
      stop = await listen(reader, wave, rate, () => {
        stop = null;
        button.setAttribute("aria-pressed", "false");
        button.textContent = "Speak";
      });
      button.setAttribute("aria-pressed", "true");
      button.textContent = "Stop";
    } catch (error) {
      lead.textContent = `This browser gives the page no microphone at ${rate} samples per second (${error.message}).`;
    }
  });
  return show;
}

// The first channel of a recording; the browser resamples it.
async function decoded(bytes, rate) {
  const context = new OfflineAudioContext(1, 1, rate);
  return (await context.decodeAudioData(bytes)).getChannelData(0);
}

// Reads what is heard until somebody stops it; gives the function that does.
async function listen(reader, wave, rate, stopped) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  const context = new AudioContext({ sampleRate: rate });
  const turn = reader.clear("listening");
  const stop = () => {
    for (const track of stream.getTracks()) track.stop();
    context.close();
    if (turn === reader.turn) document.body.dataset.state = "done";
    stopped();
  };
  const heard = [];
  try {
    const source = context.createMediaStreamSource(stream);
    await context.audioWorklet.addModule(URL.createObjectURL(new Blob([LISTENER], { type: "text/javascript" })));
    const listener = new AudioWorkletNode(context, "listener");
    listener.port.onmessage = ({ data }) => heard.push(data);
    source.connect(listener);
  } catch (error) {
    stop();
    throw error;
  }
  follow(reader, wave, rate, turn, heard, stop);
  return stop;
}

async function follow(reader, wave, rate, turn, heard, stop) {
  const reading = reader.model.begin();
  let samples = new Float32Array(0);
  while (turn === reader.turn && document.body.dataset.state === "listening") {
    samples = joined([samples, ...heard.splice(0)]);
    reader.samples = wave.samples = samples;
    const whole = samples.length - (samples.length % reader.model.about.chunk);
    while (reading.position < whole) reader.add(await reading.next(samples));
    if (turn !== reader.turn) break;
    reader.show(reading.position);
    if (samples.length >= LONGEST_SPEECH_SECONDS * rate) stop();
    await new Promise(requestAnimationFrame);
  }
  reader.samples = wave.samples = samples.subarray(0, reading.position);
}

function joined(parts) {
  const whole = new Float32Array(parts.reduce((length, part) => length + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

class Wave {
  constructor(canvas, reader) {
    this.canvas = canvas;
    this.samples = [];
    this.position = 0;
    reader.told = (position) => this.draw(position);
    new ResizeObserver(() => this.draw(this.position)).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw(this.position));
  }

  // One line for each column of the screen, from the lowest to the highest sample there.
  draw(position) {
    this.position = position;
    const { context, width, height } = fitted(this.canvas);
    const colours = themeColours();
    const { samples } = this;
    context.fillStyle = colours.faint;
    context.fillRect(0, height / 2, width, 1);
    let loudest = 0.05;
    for (const sample of samples) loudest = Math.max(loudest, Math.abs(sample));
    for (let column = 0; column < width && samples.length; column += 1) {
      const start = Math.floor((column * samples.length) / width);
      const end = Math.max(start + 1, Math.floor(((column + 1) * samples.length) / width));
      let [low, high] = [Infinity, -Infinity];
      for (let index = start; index < end; index += 1) {
        low = Math.min(low, samples[index]);
        high = Math.max(high, samples[index]);
      }
      const y = (value) => (height / 2) * (1 - (0.94 * value) / loudest);
      context.fillStyle = start < position ? colours.blue : colours.quiet;
      context.globalAlpha = start < position ? 1 : 0.35;
      context.fillRect(column, y(high), 1, Math.max(1, y(low) - y(high)));
    }
    context.globalAlpha = 1;
  }
}
