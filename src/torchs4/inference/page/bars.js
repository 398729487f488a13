// The probabilities of this moment: the likeliest in large letters, and a bar for each.

// More classes than this are shown by rank instead of by name.
const MOST = 12;
const RANKED = 10;

export class Bars {
  constructor(names) {
    this.names = names.map(shown);
    this.ranked = names.length > MOST;
    this.list = document.getElementById("bars");
    const longest = Math.max(...this.names.map((name) => name.length));
    // Bars begin below one another; short names leave room for two columns on a narrow screen.
    this.list.style.setProperty("--name", `${Math.min(Math.max(longest, 2), MOST)}ch`);
    this.list.classList.toggle("few", longest <= 3);
    const count = this.ranked ? RANKED : names.length;
    this.rows = Array.from({ length: count }, (_, index) => this.#addRow(this.ranked ? "" : this.names[index]));
    this.clear();
  }

  #addRow(name) {
    const row = document.createElement("li");
    row.innerHTML = '<span class="name"></span><span class="track"><div class="fill"></div></span><span class="share"></span>';
    const [label, track, share] = row.children;
    label.textContent = name;
    this.list.append(row);
    return { row, label, fill: track.firstChild, share };
  }

  clear() {
    this.probabilities = null;
    tell("…", "");
    for (const { row, label, fill, share } of this.rows) {
      row.classList.remove("leads");
      if (this.ranked) label.textContent = "\u00a0";
      fill.style.width = "0";
      share.textContent = "";
    }
  }

  show(probabilities) {
    this.probabilities = probabilities;
    const order = probabilities.map((_, index) => index);
    const leader = probabilities.indexOf(Math.max(...probabilities));
    if (this.ranked) order.sort((one, other) => probabilities[other] - probabilities[one]);
    tell(this.names[leader], percent(probabilities[leader]));
    this.rows.forEach(({ row, label, fill, share }, place) => {
      const index = order[place];
      row.classList.toggle("leads", index === leader);
      if (this.ranked) label.textContent = this.names[index];
      fill.style.width = `${100 * probabilities[index]}%`;
      share.textContent = percent(probabilities[index]);
    });
  }
}

// What has no picture of its own gets one.
function shown(name) {
  return { " ": "␣", "\n": "⏎", "\t": "⇥" }[name] ?? name;
}

function percent(probability) {
  const share = 100 * probability;
  const isPlain = share < 0.05 || share >= 99.95 || (share >= 10 && share < 99);
  return `${share.toFixed(isPlain ? 0 : 1)} %`;
}

function tell(name, share) {
  document.getElementById("verdict-name").textContent = name;
  document.getElementById("verdict-share").textContent = share;
}
