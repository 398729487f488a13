// Loads the model, chooses the view that suits it, and says what the page is about.

import { Bars } from "./bars.js";
import { Chart } from "./chart.js";
import { drawing } from "./drawing.js";
import { Model } from "./model.js";
import { photograph } from "./photograph.js";
import { Reader } from "./reader.js";
import { sound } from "./sound.js";
import { text } from "./text.js";

const VIEWS = {
  drawing: { start: drawing, unit: "pixels read", lead: "Draw a digit. A state space model reads it pixel by pixel, row by row, and makes up its mind on the way." },
  photograph: { start: photograph, unit: "pixels read", lead: "Choose a picture. A state space model reads it pixel by pixel, row by row, and makes up its mind on the way." },
  sound: { start: sound, unit: "seconds", lead: "Choose a recording or speak. A state space model hears it sample by sample and makes up its mind on the way." },
  text: { start: text, template: "text", unit: "characters read", lead: "Give it a text. A state space model reads it character by character and makes up its mind on the way." },
  writing: { start: text, template: "text", unit: "characters read", lead: "Give it a text. A state space model reads it character by character and says what comes next." },
};

async function begin() {
  const response = await fetch("page.json");
  if (!response.ok) throw new Error(`page.json could not be loaded (${response.status}).`);
  const page = await response.json();
  const { kind } = page.view;
  const view = VIEWS[kind];
  const template = document.getElementById(view.template ?? kind);
  document.getElementById("input").append(template.content.cloneNode(true));
  document.body.dataset.kind = kind;
  if (page.title) document.getElementById("title").textContent = document.title = page.title;
  document.getElementById("speed-label").hidden = matchMedia("(prefers-reduced-motion: reduce)").matches;

  const model = await Model.load({ inChunks: kind === "sound" });
  const { about } = model;
  const isWriting = kind === "writing";
  const bars = new Bars(about.names);
  const curves = isWriting ? ["what came"] : about.names;
  const perUnit = kind === "sound" ? about.sample_rate : 1;
  const chart = new Chart(document.getElementById("chart"), curves, view.unit, perUnit);
  const reader = new Reader(model, bars, chart);
  if (isWriting) document.getElementById("course-title").textContent = "How likely each character was that came";
  const show = view.start(reader, page);
  document.getElementById("lead").textContent = view.lead;
  document.getElementById("about").textContent =
    `${page.parameters.toLocaleString("en")} parameters, computed on this device; nothing leaves it.`;
  window.torchs4 = hooks(model, reader, show);
  document.body.dataset.state = "ready";
}

// For programs that use the page, such as tests; docs/production.md describes them.
function hooks(model, reader, show) {
  return {
    about: model.about,
    show,
    samples: () => Array.from(reader.samples),
    probabilities: () => reader.bars.probabilities,
    course: () => reader.rows,
    async read(samples) {
      const reading = model.begin();
      const rows = [];
      while (reading.position < samples.length / model.columns) rows.push(...(await reading.next(samples)));
      return rows.map(({ probabilities }) => probabilities);
    },
  };
}

// Whatever goes wrong, now or while something is read, is told.
window.addEventListener("unhandledrejection", ({ reason }) => {
  document.body.dataset.state = "failed";
  document.getElementById("lead").textContent = `Something went wrong: ${reason?.message ?? reason}`;
});
begin();
