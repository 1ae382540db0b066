"use strict";
// The page of `quern serve --db FILE`. Everything that comes from the model or the database is written as text, never
// as markup. No request leaves this server.

const $ = (selector, inside = document) => inside.querySelector(selector);
const token = new URLSearchParams(location.hash.slice(1)).get("token");
let conversation = ""; // id of the conversation that the next question continues
let running = null; // AbortController of the question under way

function api(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = "Bearer " + token;
  return fetch("api/" + path, { ...options, headers });
}

async function fetchJSON(path, options) {
  const reply = await api(path, options);
  const body = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Error(body.error || reply.statusText);
  return body;
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// ---- asking

$("#ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = $("#question").value.trim();
  if (question && !running) ask(question);
});

$("#question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("#ask").requestSubmit();
  }
});
$("#question").addEventListener("input", (event) => {
  event.target.style.height = "auto";
  event.target.style.height = event.target.scrollHeight + "px";
});
$("#stop").addEventListener("click", () => running?.abort());
$("#fresh").addEventListener("click", startAfresh);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
  if (event.altKey && event.key.toLowerCase() === "n") startAfresh();
  if (event.key === "/" && document.activeElement === document.body) {
    event.preventDefault();
    $("#question").focus();
  }
});

function startAfresh() {
  running?.abort();
  conversation = "";
  $("#answers").replaceChildren();
  $("#question").focus();
}

function setRunning(controller) {
  running = controller;
  $("#send").hidden = controller !== null;
  $("#stop").hidden = controller === null;
}

async function ask(question) {
  const item = $("#answer").content.firstElementChild.cloneNode(true);
  $("h2", item).textContent = question;
  $("#answers").append(item);
  item.scrollIntoView({ block: "start" });
  $("#question").value = "";
  $("#question").style.height = "auto";
  setRunning(new AbortController());
  try {
    const reply = await api("ask", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ question, conversation }),
      signal: running.signal,
    });
    if (!reply.ok) throw new Error((await reply.json().catch(() => ({}))).error || reply.statusText);
    for await (const { event, data } of serverEvents(reply.body)) show(item, event, data);
  } catch (error) {
    note(item, error.name === "AbortError" ? "Stopped." : error.message, error.name !== "AbortError");
  } finally {
    setRunning(null);
    $("#question").focus();
  }
}

async function* serverEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const lines = text.slice(0, end).split("\n");
      const field = (name) => lines.filter((l) => l.startsWith(name + ": ")).map((l) => l.slice(name.length + 2)).join("\n");
      yield { event: field("event"), data: JSON.parse(field("data") || "null") };
    }
  }
}

function show(item, event, data) {
  switch (event) {
    case "step":
      return step(item, data);
    case "answer":
      return answer(item, data);
    case "error":
      return note(item, data.error, true);
  }
}

// step appends to the list of steps; pieces of one kind flow into one line.
function step(item, { kind, text }) {
  const list = $(".steps ol", item);
  const last = list.lastElementChild;
  if (last && last.dataset.kind === kind && (kind === "text" || kind === "think")) {
    last.textContent += text;
    return;
  }
  const line = element("li", text, kind);
  line.dataset.kind = kind;
  list.append(line);
}

function note(item, text, bad = false) {
  const notes = $(".notes", item);
  notes.textContent += (notes.textContent ? "\n" : "") + text;
  notes.classList.toggle("bad", bad);
}

function answer(item, data) {
  conversation = data.conversation || "";
  $(".steps", item).open = false;
  for (const text of data.notes || []) note(item, text, Boolean(data.failed));
  if (data.sql) showSQL(item, data.sql);
  if (data.columns) showRows(item, data);
  $(".foot", item).textContent = data.foot || "";
  item.scrollIntoView({ block: "nearest" });
}

function showSQL(item, sql) {
  $(".sql", item).hidden = false;
  $(".sql code", item).replaceChildren(...highlight(sql));
  $(".copy", item).addEventListener("click", async (event) => {
    if (!(await copyText(sql, $(".sql code", item)))) return;
    event.target.textContent = "Copied";
    setTimeout(() => (event.target.textContent = "Copy SQL"), 1500);
  });
}

// copyText copies a text, or selects the element that shows it where the browser grants no clipboard (plain http from
// another machine).
async function copyText(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(shown);
    return document.execCommand("copy");
  }
}

const keywords = new Set(
  ("select from where group by order having limit offset join left inner cross outer natural on using as and or not in is null like glob between " +
    "exists union all except intersect distinct case when then else end with recursive asc desc cast over partition values").split(" "));

function highlight(sql) {
  const parts = sql.match(/'(?:[^']|'')*'?|"(?:[^"]|"")*"?|[A-Za-z_]\w*|[\s\S]/g) || [];
  return parts.map((part) => {
    if (part[0] === "'") return element("span", part, "string");
    if (keywords.has(part.toLowerCase())) return element("span", part, "keyword");
    return document.createTextNode(part);
  });
}

// ---- rows: cells are {"t": type, "v": value as text} with type one of null integer real text blob

const isNumber = (cell) => cell.t === "integer" || cell.t === "real";

function showRows(item, { columns, rows, sql }) {
  const holder = $(".rows", item);
  holder.hidden = false;
  const table = element("table");
  const head = table.createTHead().insertRow();
  columns.forEach((name, at) => {
    const th = element("th");
    th.scope = "col";
    if (rows.some((row) => isNumber(row[at])) && rows.every((row) => isNumber(row[at]) || row[at].t === "null")) th.className = "number";
    const button = element("button", name);
    button.type = "button";
    button.addEventListener("click", () => sortBy(table, th, rows, at));
    th.append(button);
    head.append(th);
  });
  fill(table, rows);
  holder.replaceChildren(table);
  const download = $(".download", item);
  download.hidden = false;
  for (const button of download.querySelectorAll("button")) button.addEventListener("click", () => save(item, sql, button.dataset.format));
  const chart = drawChart(columns, rows);
  if (chart) {
    $(".chart", item).hidden = false;
    $(".chart", item).replaceChildren(chart);
  }
}

function fill(table, rows) {
  const body = element("tbody");
  for (const row of rows) {
    const tr = body.insertRow();
    for (const cell of row) tr.append(element("td", cell.t === "null" ? "NULL" : cell.v, cell.t === "null" ? "null" : isNumber(cell) ? "number" : ""));
  }
  table.tBodies[0]?.remove();
  table.append(body);
}

function sortBy(table, th, rows, at) {
  const down = th.getAttribute("aria-sort") === "ascending";
  for (const other of th.parentNode.children) other.removeAttribute("aria-sort");
  th.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rank = (cell) => (cell.t === "null" ? 0 : isNumber(cell) ? 1 : 2); // SQLite's own order of types
  const sorted = [...rows].sort((a, b) => {
    const [x, y] = [a[at], b[at]];
    const byType = rank(x) - rank(y);
    const order = byType || (isNumber(x) ? Number(x.v) - Number(y.v) : x.t === "null" ? 0 : x.v < y.v ? -1 : x.v > y.v ? 1 : 0);
    return down ? -order : order;
  });
  fill(table, sorted);
}

async function save(item, sql, format) {
  try {
    const reply = await api("export", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ sql, format }) });
    if (!reply.ok) throw new Error((await reply.json().catch(() => ({}))).error || reply.statusText);
    const link = element("a");
    link.href = URL.createObjectURL(await reply.blob());
    link.download = "answer." + format;
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    note(item, error.message, true);
  }
}

// ---- chart: one label column and one number column, two to fifty rows. Numbers or dates in order make a curve, others bars.

function drawChart(columns, rows) {
  if (columns.length !== 2 || rows.length < 2 || rows.length > 50) return null;
  const numeric = [0, 1].map((at) => rows.every((row) => isNumber(row[at])));
  if (!numeric[1] || rows.some((row) => row[0].t === "null" || row[0].t === "blob")) return null;
  const labels = rows.map((row) => row[0].v);
  const values = rows.map((row) => Number(row[1].v));
  if (values.some((v) => !Number.isFinite(v))) return null;
  const ordered = numeric[0] || labels.every((l) => /^\d{4}(-\d\d){0,2}$/.test(l));
  const rising = labels.every((l, i) => i === 0 || (numeric[0] ? Number(labels[i - 1]) < Number(l) : labels[i - 1] < l));
  return ordered && rising && rows.length > 2 ? curve(labels, values, columns) : bars(labels, values, columns);
}

function svg(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const short = (text, most = 22) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

function bars(labels, values, columns) {
  const [width, row, left, right] = [640, 22, 170, 70];
  const low = Math.min(0, ...values);
  const span = Math.max(0, ...values) - low || 1;
  const x = (v) => left + ((v - low) / span) * (width - left - right);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${labels.length * row + 6}`, role: "img" });
  drawing.append(svg("title", {}, `${columns[1]} by ${columns[0]}`));
  labels.forEach((label, i) => {
    const y = i * row + 4;
    drawing.append(svg("text", { x: left - 8, y: y + 13, "text-anchor": "end" }, short(label)));
    drawing.append(svg("rect", { class: "mark", x: Math.min(x(0), x(values[i])), y, width: Math.max(1, Math.abs(x(values[i]) - x(0))), height: row - 6, rx: 2 }));
    drawing.append(svg("text", { x: Math.max(x(0), x(values[i])) + 6, y: y + 13 }, String(values[i])));
  });
  return drawing;
}

function curve(labels, values, columns) {
  const [width, height, left, bottom] = [640, 220, 60, 24];
  const low = Math.min(0, ...values);
  const span = Math.max(...values) - low || 1;
  const x = (i) => left + (i / (values.length - 1)) * (width - left - 16);
  const y = (v) => 10 + (1 - (v - low) / span) * (height - bottom - 10);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  drawing.append(svg("title", {}, `${columns[1]} by ${columns[0]}`));
  for (const v of [low, low + span]) {
    drawing.append(svg("line", { class: "axis", x1: left, x2: width - 16, y1: y(v), y2: y(v) }));
    drawing.append(svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, String(Number(v.toPrecision(6)))));
  }
  drawing.append(svg("polyline", { class: "curve", points: values.map((v, i) => `${x(i)},${y(v)}`).join(" ") }));
  values.forEach((v, i) => drawing.append(svg("circle", { class: "mark", cx: x(i), cy: y(v), r: 3 })));
  drawing.append(svg("text", { x: left, y: height - 6 }, short(labels[0])));
  drawing.append(svg("text", { x: width - 16, y: height - 6, "text-anchor": "end" }, short(labels.at(-1))));
  return drawing;
}

// ---- panels

function panel(button, section, fillPanel) {
  button.addEventListener("click", async () => {
    section.hidden = !section.hidden;
    button.setAttribute("aria-expanded", String(!section.hidden));
    if (section.hidden) return;
    try {
      section.replaceChildren(...(await fillPanel()));
    } catch (error) {
      section.replaceChildren(element("p", error.message, "notes bad"));
    }
    section.scrollIntoView({ block: "nearest" });
  });
}

panel($("#show-schema"), $("#schema"), async () => {
  const { tables } = await fetchJSON("schema");
  return tables.flatMap((table) => {
    const title = element("h3", table.name + (table.view ? " (view)" : ""));
    if (table.rows) title.append(element("span", "  " + table.rows + " rows", "dim"));
    const list = element("ul");
    for (const column of table.columns) {
      const line = element("li", column.name + " ");
      line.append(element("span", [column.type, column.key, column.references && "→ " + column.references].filter(Boolean).join(" · "), "dim"));
      list.append(line);
    }
    return [title, list];
  });
});

panel($("#show-history"), $("#history"), async () => {
  const { questions } = await fetchJSON("history");
  if (!questions.length) return [element("p", "Nothing was asked here yet.", "dim")];
  return questions.map((q) => {
    const button = element("button", q.question, "ask-again");
    button.type = "button";
    button.title = q.final_sql || q.outcome;
    button.addEventListener("click", () => {
      $("#question").value = q.question;
      $("#question").focus();
    });
    return button;
  });
});

fetchJSON("about").then(({ database, model, note: text }) => {
  $("#about").textContent = [database, model, text].filter(Boolean).join(" · ");
  document.title = database + " · Quern";
}).catch((error) => ($("#about").textContent = error.message));
