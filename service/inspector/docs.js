// The page at /docs: openapi.json, readable, with a form that sends each request.

import { keyHeaders, setKey } from "./api.js";

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// Descriptions mark code by backticks.
function prose(tag, text) {
  const parts = text.split("`").map((part, index) => (index % 2 ? element("code", { textContent: part }) : part));
  return element(tag, {}, ...parts);
}

function resolve(api, schema) {
  return schema?.$ref ? schema.$ref.slice(2).split("/").reduce((at, key) => at[key], api) : schema;
}

function typeOf(api, schema) {
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) {
    return choices.map((choice) => typeOf(api, choice)).filter((name) => name !== "null").join(" or ");
  }
  if (schema.const !== undefined) {
    return JSON.stringify(schema.const);
  }
  if (schema.enum) {
    return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  }
  if (schema.type === "array") {
    return `list of ${typeOf(api, schema.items ?? {})}`;
  }
  if (schema.$ref) {
    return resolve(api, schema).type ?? "object";
  }
  return schema.type ?? "any";
}

function nested(api, schema) {
  const target = schema.items ?? schema.anyOf?.find((choice) => choice.$ref || choice.items?.$ref) ?? schema;
  const found = resolve(api, target.items ?? target);
  return found?.properties ? found : null;
}

function fieldRows(api, schema, prefix = "") {
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const inner = nested(api, field);
    const isList = field.type === "array" || field.anyOf?.some((choice) => choice.type === "array");
    const path = prefix + name;
    const needed = schema.required?.includes(name) ? "required" : "";
    const row = element("tr", {},
      element("td", {}, element("code", { textContent: path })),
      element("td", { textContent: typeOf(api, field) }),
      prose("td", [needed, field.description].filter(Boolean).join("; ")));
    return [row, ...(inner ? fieldRows(api, inner, path + (isList ? "[]." : ".")) : [])];
  });
}

function fieldTable(api, schema) {
  const head = element("tr", {}, ...["Field", "Type", "Meaning"].map((textContent) => element("th", { textContent, scope: "col" })));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...fieldRows(api, schema)));
}

function tryForm(path, method, examples) {
  const answer = element("pre", { hidden: true, tabIndex: 0 });
  const form = element("form", {});
  const body = examples && element("textarea", { className: "json", rows: 10, spellcheck: false, ariaLabel: "Body of the request" });
  if (body) {
    const choice = element("select", { ariaLabel: "Example" }, ...Object.entries(examples).map(([name, example]) => new Option(example.summary ?? name, name)));
    const fill = () => { body.value = JSON.stringify(examples[choice.value].value, null, 2); };
    choice.addEventListener("change", fill);
    fill();
    form.append(element("div", { className: "bar" }, "Example ", choice), body);
  }
  form.append(element("div", { className: "bar" }, element("button", { type: "submit", textContent: "Send" })), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    answer.hidden = false;
    answer.textContent = "…";
    try {
      const headers = keyHeaders();
      const options = body ? { method, body: body.value, headers: { ...headers, "Content-Type": "application/json" } } : { method, headers };
      const response = await fetch(path, options);
      const text = await response.text();
      const isJson = response.headers.get("content-type")?.includes("json");
      answer.textContent = `${response.status} ${response.statusText}\n\n${isJson ? JSON.stringify(JSON.parse(text), null, 2) : text}`;
    } catch (error) {
      answer.textContent = error.message;
    }
  });
  return form;
}

function statusTable(responses) {
  const rows = Object.entries(responses).map(([status, response]) =>
    element("tr", {}, element("td", {}, element("code", { textContent: status })), prose("td", response.description)));
  return element("table", {}, element("tbody", {}, ...rows));
}

function operation(api, path, method, details) {
  const request = details.requestBody?.content["application/json"];
  const answer = details.responses["200"]?.content?.["application/json"];
  const parts = [element("summary", {},
    element("span", { className: "method", textContent: method.toUpperCase() }), " ",
    element("code", { textContent: path }), ` ${details.summary ?? ""}`)];
  if (details.description) {
    parts.push(prose("p", details.description));
  }
  if (request) {
    parts.push(element("h2", { textContent: "Body" }), fieldTable(api, resolve(api, request.schema)));
  }
  if (answer?.schema) {
    const schema = resolve(api, answer.schema);
    if (schema.properties) {
      parts.push(element("h2", { textContent: "Answer" }), fieldTable(api, schema));
    }
  }
  if (answer?.example) {
    parts.push(element("pre", { textContent: JSON.stringify(answer.example, null, 2) }));
  }
  parts.push(element("h2", { textContent: "Statuses" }), statusTable(details.responses));
  parts.push(element("h2", { textContent: "Try it" }), tryForm(path, method.toUpperCase(), request?.examples));
  return element("details", { open: path === "/v1/translate" }, ...parts);
}

const api = await (await fetch("/openapi.json")).json();
document.getElementById("version").textContent = `version ${api.info.version}`;
document.getElementById("key").addEventListener("input", (event) => setKey(event.target.value.trim()));
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, details] of Object.entries(methods)) {
    document.getElementById("main").append(operation(api, path, method, details));
  }
}
