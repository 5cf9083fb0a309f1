// The page at /: one form over POST /v1/translate.

const find = (id) => document.getElementById(id);
const form = find("form");
const output = find("output");
const facts = find("facts");
let models = [];
let running = null;

async function loadModels() {
  try {
    const response = await fetch("/v1/models");
    const answer = await response.json();
    if (!response.ok) {
      throw new Error(answer.detail);
    }
    models = answer.models;
    find("model").replaceChildren(...models.map((model) => new Option(`${model.name} (${model.source} → ${model.target})`, model.name)));
    find("status").textContent = "Ready";
    showLanguages();
  } catch (error) {
    find("status").textContent = `Not ready: ${error.message}`;
    setTimeout(loadModels, 1000);
  }
}

function showLanguages() {
  const model = models.find((candidate) => candidate.name === find("model").value);
  if (!model) {
    return;
  }
  const names = new Intl.DisplayNames([navigator.language], { type: "language", fallback: "code" });
  find("source-label").textContent = names.of(model.source);
  find("target-label").textContent = names.of(model.target);
  find("text").lang = model.source;
  output.lang = model.target;
}

async function translate() {
  running?.abort();
  running = new AbortController();
  const signal = running.signal;
  output.className = "pending";
  try {
    const response = await fetch("/v1/translate", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({
        text: find("text").value,
        model: find("model").value || null,
        decoding: { beam_size: find("beam").valueAsNumber },
        return: ["scores"],
      }),
      signal,
    });
    const answer = await response.json();
    if (!response.ok) {
      throw new Error(answer.detail);
    }
    showTranslation(answer);
  } catch (error) {
    if (!signal.aborted) {
      output.className = "bad";
      output.textContent = error.message;
      facts.textContent = "";
    }
  }
}

function showTranslation(answer) {
  const [translation] = answer.translations;
  output.className = "";
  output.textContent = translation.text;
  const parts = [
    `${answer.usage.source_tokens} source and ${answer.usage.target_tokens} target tokens`,
    `${Math.round(1000 * answer.timings.total_seconds)} ms`,
    `${answer.model.name}, revision ${answer.model.revision}`,
  ];
  if (translation.score !== undefined) {
    parts.push(`mean log-probability of a token ${translation.score.toFixed(2)}`);
  }
  if (translation.windowed) {
    parts.push("a sentence was too long and was translated in parts");
  }
  if (translation.truncated) {
    parts.push("cut at the limit of target tokens");
  }
  facts.textContent = parts.join(" · ");
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  translate();
});
find("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    form.requestSubmit();
  }
});
find("model").addEventListener("change", showLanguages);
loadModels();
