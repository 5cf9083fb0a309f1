// Files of what is on the screen. Pictures carry their background; numbers carry their names.

import { css, palette, indexOf, scaled } from "./color.js";
import { download } from "./dom.js";
import { row } from "./maps.js";
import { escapeXml } from "./threads.js";

const stem = ({ kind, layer, head }) => `gossamer-${kind}-layer${layer}-${head === "mean" ? "mean" : `head${head}`}`;

export function saveJson(view) {
  const { map, queries, keys, kind, layer, head, grain, answer } = view;
  const names = (labels) => labels.map(({ piece, text }) => piece || text);
  const content = {
    model: answer.model, source: answer.source, target: answer.target, precision: answer.precision, text: view.segment.source, translation: view.segment.target,
    kind, layer, head, granularity: grain, axes: ["query", "key"], queries: names(queries), keys: names(keys),
    weights: Array.from({ length: map.queries }, (_, q) => [...row(map, q)]),
  };
  download(`${stem(view)}.json`, JSON.stringify(content, null, 1), "application/json");
}

const field = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

export function saveCsv(view) {
  const { map, queries, keys, kind, layer, head } = view;
  const lines = ["kind,layer,head,query,key,query_token,key_token,weight"];
  for (let q = 0; q < map.queries; q += 1) {
    for (let k = 0; k < map.keys; k += 1) {
      lines.push([kind, layer, head, q, k, field(queries[q].piece || queries[q].text), field(keys[k].piece || keys[k].text), map.data[q * map.keys + k]].join(","));
    }
  }
  download(`${stem(view)}.csv`, `${lines.join("\r\n")}\r\n`, "text/csv");
}

export function saveMapSvg(view, colors, cmap, scale) {
  const { map, queries, keys } = view;
  const cell = 24;
  const left = 120;
  const top = 110;
  const ramp = palette(cmap, colors.paper, colors.isDark);
  const cells = [];
  for (let q = 0; q < map.queries; q += 1) {
    const weights = row(map, q);
    const most = Math.max(...weights);
    weights.forEach((weight, k) => {
      cells.push(`<rect x="${left + k * cell}" y="${top + q * cell}" width="${cell - 1}" height="${cell - 1}" fill="${css(ramp[indexOf(scaled(weight, scale, most))])}"><title>${escapeXml(`${queries[q].text} → ${keys[k].text}: ${weight}`)}</title></rect>`);
    });
  }
  const names = queries.map((label, q) => `<text x="${left - 8}" y="${top + q * cell + 16}" text-anchor="end">${escapeXml(label.text)}</text>`)
    .concat(keys.map((label, k) => `<text transform="translate(${left + k * cell + 14} ${top - 8}) rotate(-45)">${escapeXml(label.text)}</text>`));
  const width = left + map.keys * cell + 90;
  const height = top + map.queries * cell + 16;
  download(`${stem(view)}.svg`, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}"><rect width="100%" height="100%" fill="${css(colors.paper)}"/>${cells.join("")}<g font-family="system-ui, sans-serif" font-size="13" fill="${css(colors.ink)}">${names.join("")}</g></svg>`, "image/svg+xml");
}

export function saveThreads(view, threads) {
  download(`${stem(view)}-threads.svg`, threads.svg(`${view.segment.source} — ${view.segment.target}`), "image/svg+xml");
}

export async function saveMapPng(view, heatmap) {
  download(`${stem(view)}.png`, await heatmap.png(), "image/png");
}
