// The exported graphs, run by onnxruntime-web in one thread.

import * as ort from "./ort.wasm.bundle.min.mjs";

ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = { wasm: new URL("ort-wasm-simd-threaded.wasm", import.meta.url).href };

const ARRAYS = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array };

export class Model {
  // Chunks are quicker, steps tell more. The graph for chunks is large, and left out where it is not needed.
  static async load({ inChunks }) {
    const response = await fetch("model.json");
    if (!response.ok) throw new Error(`model.json could not be loaded (${response.status}).`);
    const about = await response.json();
    const graphs = {};
    for (const [kind, file] of Object.entries(about.graphs)) {
      const isNeeded = kind === "step" || inChunks || !about.graphs.step;
      if (file && isNeeded) graphs[kind] = await ort.InferenceSession.create(file);
    }
    return new Model(about, graphs);
  }

  constructor(about, graphs) {
    this.about = about;
    this.graphs = graphs;
    this.columns = about.reads === "tokens" ? 1 : about.input_features;
  }

  // A sequence that is read from its beginning.
  begin() {
    return new Reading(this);
  }
}

class Reading {
  constructor(model) {
    this.model = model;
    this.position = 0;
    this.state = model.about.state.map(({ name, shape, dtype }) => {
      const size = shape.slice(1).reduce((product, length) => product * length, 1);
      return [name, new ort.Tensor(dtype, new ARRAYS[dtype](size), [1, ...shape.slice(1)])];
    });
  }

  // Reads what comes next of the samples, a flat array from the sequence's beginning; one position, or a chunk.
  // The rest of a sequence is read in steps where there is a graph for them; else zeros fill its last chunk.
  // Gives [{position, probabilities}, …], the last of them from everything up to there.
  async next(samples) {
    const { model, position } = this;
    const left = samples.length / model.columns - position;
    const { chunk } = model.about;
    const steps = model.graphs.step && (!model.graphs.chunk || left < chunk);
    const count = steps ? 1 : chunk;
    const part = samples.slice(position * model.columns, (position + count) * model.columns);
    const prediction = await this.#run(steps ? "step" : "chunk", part, steps ? [1] : [1, chunk]);
    const size = model.about.output_size;
    const end = position + Math.min(count, left);
    this.position = end;
    if (model.about.pooling !== "none") return [{ position: end, probabilities: softmax(prediction) }];
    return Array.from({ length: end - position }, (_, index) => ({
      position: position + index + 1,
      probabilities: softmax(prediction.subarray(index * size, (index + 1) * size)),
    }));
  }

  async #run(graph, part, shape) {
    const { about, columns } = this.model;
    const isTokens = about.reads === "tokens";
    const array = new (isTokens ? BigInt64Array : Float32Array)(shape.at(-1) * columns);
    array.set(isTokens ? Array.from(part, BigInt) : part);
    const dimensions = isTokens ? shape : [...shape, columns];
    const inputs = { samples: new ort.Tensor(isTokens ? "int64" : "float32", array, dimensions) };
    const outputs = await this.model.graphs[graph].run({ ...inputs, ...Object.fromEntries(this.state) });
    this.state = this.state.map(([name]) => [name, outputs[name.replace(/^state\./, "next.")]]);
    return outputs.prediction.data;
  }
}

function softmax(values) {
  const largest = Math.max(...values);
  const powers = Array.from(values, (value) => Math.exp(value - largest));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}
