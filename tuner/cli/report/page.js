// page.js: the report's pictures. in: the document in #data -> out: sections, a request each.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function element(tag, content, attributes) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  for (const one of [].concat(content === undefined || content === null ? [] : content)) made.append(one);
  return made;
}

const number = (value, digits) =>
  value === null || value === undefined ? "-" : Number(value.toPrecision(digits || 4)).toLocaleString("en", {maximumFractionDigits: 3});

function figure(title, body, caption) {
  return element("figure", [element("h3", title), body, element("figcaption", caption)]);
}

// ---- drawing ----

const drawn = []; // functions that draw again: with another width, or in the other colours

function axis(label, extra) {
  return {label, stroke: colour("ink"), grid: {stroke: colour("line"), width: 1}, ticks: {stroke: colour("line"), width: 1},
          labelSize: 22, font: "12px system-ui", labelFont: "12px system-ui", ...extra};
}

// A scale that goes no further than its data: logarithmic where they differ by much.
function scale(values, more, always) {
  const least = Math.min(...values), most = Math.max(...values);
  const pad = Math.max((most - least) * 0.06, most * 0.02);
  if (always || most > 8 * least) return {...more, distr: 3, range: () => [least / 1.12, most * 1.12]};
  return {...more, range: () => [Math.max(0, least - pad), most + pad]};
}

function dots(label, name, count) {
  const size = count > 1000 ? 3 : 6;
  return {label, stroke: colour(name), paths: () => null,
          points: {show: true, size, fill: colour(name), stroke: colour(name)}};
}

// make() gives uPlot's options and data. A chart of nothing is a sentence.
function chart(make, nothing) {
  const box = element("div");
  let plot = null;
  function draw() {
    const [options, columns] = make();
    if (plot) plot.destroy();
    box.textContent = "";
    plot = null;
    if (!columns || columns[0].length === 0) {
      box.append(element("p", nothing || "Nothing has a time here.", {class: "note"}));
      return;
    }
    const width = Math.max(260, box.clientWidth || 480);
    plot = new uPlot({width, height: 300, legend: {live: false}, cursor: {drag: {setScale: false}}, ...options}, columns, box);
  }
  drawn.push(draw);
  return {box, draw};
}

const by = (key) => (a, b) => a[key] - b[key];
const timed = (one) => one.trials.filter((trial) => trial.median_us > 0 && ["ok", "screened", "predicted"].includes(trial.outcome));
const measured = (one) => timed(one).filter((trial) => trial.outcome !== "predicted");

// ---- pictures ----

function landscape(one) {
  const best = new Map();
  for (const trial of timed(one)) {
    const key = `${trial.knobs.block_m}/${trial.knobs.block_n}`;
    if (!best.has(key) || trial.median_us < best.get(key).median_us) best.set(key, trial);
  }
  if (best.size === 0) return figure("Landscape", element("p", "Nothing has a time here.", {class: "note"}), "");
  const values = (name) => [...new Set(timed(one).map((trial) => trial.knobs[name]))].sort((a, b) => a - b);
  const times = [...best.values()].map((trial) => trial.median_us);
  const least = Math.min(...times), most = Math.max(...times);
  const table = element("table", element("tr", [element("th", "B_r \\ B_c"), ...values("block_n").map((n) => element("th", String(n)))]));
  for (const m of values("block_m")) {
    const row = element("tr", element("th", String(m)));
    for (const n of values("block_n")) {
      const trial = best.get(`${m}/${n}`);
      const cell = element("td", trial ? number(trial.median_us) : "");
      if (trial) {
        const share = most > least ? Math.log(most / trial.median_us) / Math.log(most / least) : 1;
        cell.style.background = `color-mix(in srgb, ${colour("first")} ${Math.round(65 * share)}%, transparent)`;
        cell.title = trial.config;
        if (trial.median_us === least) cell.className = "best";
      }
      row.append(cell);
    }
    table.append(row);
  }
  return figure("Landscape", element("div", table, {class: "scroll"}),
                "The least time of each B_r × B_c, whatever the other knobs are, in µs.");
}

function bestSoFar(one) {
  const {box, draw} = chart(() => {
    const order = timed(one).slice().sort(by("at"));
    let least = Infinity;
    const best = order.map((trial) => (least = Math.min(least, trial.median_us)));
    return [{axes: [axis("trial, in the order of their rows", {incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]}), axis("µs", {size: 60})], scales: {x: {time: false, range: [0.5, order.length + 0.5]}, y: scale(order.map((trial) => trial.median_us))},
             series: [{label: "trial"}, dots("a trial", "faint", order.length), {label: "best so far", stroke: colour("first"), width: 2, paths: uPlot.paths.stepped({align: 1}), points: {show: false}}]},
            [order.map((_, i) => i + 1), order.map((trial) => trial.median_us), best]];
  });
  return [figure("Best so far", box, "Trials that have a time. Times of screened ones are at the clock that the GPU had then."), draw];
}

function knobs(one) {
  const names = [...new Set(timed(one).flatMap((trial) => Object.keys(trial.knobs)))]
    .filter((name) => new Set(timed(one).map((trial) => trial.knobs[name])).size > 1);
  const choice = element("select", names.map((name) => element("option", name)), {"aria-label": "knob"});
  const {box, draw} = chart(() => {
    const name = choice.value;
    if (names.length === 0) return [{}, [[]]];
    const has = timed(one).filter((trial) => trial.knobs[name] !== undefined);
    const values = [...new Set(has.map((trial) => trial.knobs[name]))].sort((a, b) => a - b);
    const rows = has.map((trial) => ({x: values.indexOf(trial.knobs[name]), y: trial.median_us})).sort(by("x"));
    return [{axes: [axis(name, {splits: () => values.map((_, i) => i), values: (_, at) => at.map((i) => String(values[i]))}), axis("µs", {size: 60})],
             scales: {x: {time: false, range: [-0.5, values.length - 0.5]}, y: scale(rows.map((row) => row.y))}, series: [{label: name}, dots("a trial", "first", timed(one).length)]},
            [rows.map((row) => row.x), rows.map((row) => row.y)]];
  }, timed(one).length > 0 ? "No knob has two values here." : "");
  choice.addEventListener("change", draw);
  choice.hidden = names.length === 0;
  return [figure("Knobs against time", element("div", [choice, box]), "Each trial at its value of one knob; the others differ, too."), draw];
}

function roofline(one) {
  const {box, draw} = chart(() => {
    const peak = one.peak_tflops, bandwidth = one.dram_gbs;
    if (!(peak > 0 && bandwidth > 0 && one.bytes > 0) || timed(one).length === 0) return [{}, [[]]];
    const intensity = one.flops / one.bytes, ridge = peak * 1000 / bandwidth;
    const rows = timed(one).map((trial) => ({x: intensity, y: one.flops / trial.median_us * 1e-6}));
    const xs = [...new Set([Math.min(ridge, intensity) / 8, ridge, Math.max(ridge, intensity) * 8])];
    const all = [...xs.map((x) => ({x, roof: Math.min(peak, x * bandwidth / 1000)})), ...rows].sort(by("x"));
    return [{axes: [axis("floating-point operations a byte of Q, K, V, O"), axis("TFLOP/s", {size: 60})],
             scales: {x: scale(all.map((row) => row.x), {time: false}), y: scale(all.map((row) => row.roof ?? row.y), {}, true)},
             series: [{label: "intensity"}, {label: "roof", stroke: colour("second"), width: 2, spanGaps: true, points: {show: false}}, dots("a trial", "first", timed(one).length)]},
            [all.map((row) => row.x), all.map((row) => row.roof ?? null), all.map((row) => row.y ?? null)]];
  });
  return [figure("Roofline", box, `Peak ${number(one.peak_tflops)} TFLOP/s of its tensor cores, ${number(one.dram_gbs)} GB/s of its memory. Each tensor is counted once.`), draw];
}

function prediction(one) {
  const {box, draw} = chart(() => {
    const rows = measured(one).filter((trial) => trial.predicted_us > 0).map((trial) => ({x: trial.predicted_us, y: trial.median_us})).sort(by("x"));
    if (rows.length === 0) return [{}, [[]]];
    return [{axes: [axis("predicted µs"), axis("measured µs", {size: 60})],
             scales: {x: scale(rows.map((row) => row.x), {time: false}), y: scale(rows.flatMap((row) => [row.x, row.y]))},
             series: [{label: "predicted"}, dots("a trial", "first", timed(one).length), {label: "as predicted", stroke: colour("second"), width: 2, points: {show: false}}]},
            [rows.map((row) => row.x), rows.map((row) => row.y), rows.map((row) => row.x)]];
  }, timed(one).length > 0 ? "Nothing was measured here; these times are predictions themselves." : "");
  return [figure("Time against prediction", box, "On the line the model is right; above it the kernel is slower than the model says."), draw];
}

function tolls(one) {
  const rules = Object.entries((one.space && one.space.rejected) || {}).sort((a, b) => b[1] - a[1]);
  const most = rules.length ? rules[0][1] : 1;
  const table = element("table", element("tr", [element("th", "rule", {class: "text"}), element("th", "configs rejected"), element("th", "")]));
  for (const [name, count] of rules) {
    const bar = element("div", null, {class: "bar"});
    bar.style.width = `${Math.max(1, 180 * count / most)}px`;
    table.append(element("tr", [element("td", name, {class: "text"}), element("td", count.toLocaleString("en")), element("td", bar, {class: "text"})]));
  }
  return figure("What the rules rejected", element("div", table, {class: "scroll"}), "Each config counts for the first rule that rejects it.");
}

function outcomes(one) {
  const groups = new Map();
  for (const trial of one.trials) {
    const key = `${trial.outcome}\n${trial.reason.replace(/^same image as .*/, "same image as another")}`;
    groups.set(key, (groups.get(key) || 0) + 1);
  }
  const table = element("table", element("tr", [element("th", "outcome", {class: "text"}), element("th", "trials"), element("th", "reason", {class: "text"})]));
  for (const [key, count] of [...groups].sort((a, b) => b[1] - a[1]).slice(0, 30)) {
    const [outcome, reason] = key.split("\n");
    table.append(element("tr", [element("td", outcome, {class: "text"}), element("td", String(count)), element("td", reason, {class: "text"})]));
  }
  return figure("Outcomes", element("div", table, {class: "scroll"}), `${one.trials.length} trial${one.trials.length === 1 ? "" : "s"} in the caches.`);
}

function section(one) {
  const facts = element("dl");
  const fact = (name, value) => value && facts.append(element("dt", name), element("dd", value));
  fact("GPU", `${one.gpu_name} (${one.gpu_id})`);
  fact("choice", `${one.hit}: ${one.note}`);
  fact("config", element("code", one.config));
  fact("default", element("code", one.default));
  fact("why", one.why);
  fact("time", one.known_us > 0 ? `${number(one.known_us)} µs, ${number(one.flops / one.known_us * 1e-6)} TFLOP/s` : null);
  if (one.measured) fact("measured", `${new Date(one.measured.at * 1000).toISOString().slice(0, 10)} on ${one.measured.device}, driver ${one.measured.driver || "unknown"}, NVRTC ${one.measured.nvrtc || "unknown"}`);
  const charts = element("div", null, {class: "charts"}), later = [];
  for (const made of [landscape(one), bestSoFar(one), knobs(one), roofline(one), prediction(one), tolls(one), outcomes(one)]) {
    charts.append(Array.isArray(made) ? made[0] : made);
    if (Array.isArray(made)) later.push(made[1]);
  }
  page.append(element("h2", element("code", one.request)), facts, charts);
  for (const draw of later) draw();
}

page.append(element("h1", "fatune report"), element("p", `${data.version}, ${new Date(data.at * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC; ${data.requests.length} request${data.requests.length === 1 ? "" : "s"}`, {class: "note"}));
for (const one of data.requests) section(one);
const redraw = () => { for (const draw of drawn) draw(); };
let waiting = 0;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(redraw, 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
