// A text, read character by character: for its class, or for what comes next.

const CHARACTERS_PER_SECOND = 40;
const [SHORTEST_SECONDS, LONGEST_SECONDS] = [3, 15];
const READING_PAUSE_MILLISECONDS = 900;

export function text(reader, { view }) {
  const writes = view.kind === "writing";
  const numbers = new Map();
  view.characters.forEach((name, number) => {
    if ([...name].length === 1) numbers.set(name, number);
  });
  const words = document.getElementById("words");
  const shown = document.getElementById("read-text");
  let characters = [];
  let pause = 0;

  // What was read is dark, or as red as it was unlikely.
  reader.told = (position) => {
    const count = Math.min(position, characters.length);
    if (!writes) {
      shown.replaceChildren(span(characters.slice(0, count).join("")), span(characters.slice(count).join(""), "unread"));
      return;
    }
    const read = characters.slice(0, Math.max(position - 1, 0)).map((character, index) => {
      const chance = reader.rows[index][tokens[index + 1]];
      const part = span(character);
      part.style.background = `color-mix(in srgb, var(--red) ${Math.round(Math.min(-Math.log2(chance), 8) * 8)}%, transparent)`;
      part.title = `${(100 * chance).toFixed(1)} %`;
      return part;
    });
    shown.replaceChildren(...read, span(characters.slice(read.length).join(""), "unread"));
  };

  let tokens = [];
  const show = (given) => {
    clearTimeout(pause);
    characters = [...given];
    const read = characters.map((character) => numbers.get(character) ?? view.unknown);
    // As in training: a mark ends each text, and what follows a mark begins one.
    tokens = writes ? [view.end_of_text, ...read] : [...read, view.end_of_text];
    const seconds = Math.min(Math.max(tokens.length / CHARACTERS_PER_SECOND, SHORTEST_SECONDS), LONGEST_SECONDS);
    return reader.read(tokens, seconds);
  };
  // The curve of a writer: how likely it found the character that came; after the last one none did.
  if (writes) {
    reader.beyond = 1;
    reader.curves = (probabilities, position) => position < tokens.length && [probabilities[tokens[position]]];
  }

  document.getElementById("again").addEventListener("click", () => show(words.value));
  words.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => words.value && show(words.value), READING_PAUSE_MILLISECONDS);
  });
  words.placeholder = writes ? "Type something; the redder a character, the less it was expected." : "Type or paste a text.";
  return show;
}

function span(content, name = "") {
  const part = document.createElement("span");
  part.textContent = content;
  part.className = name;
  return part;
}
