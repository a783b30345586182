"use strict";
// "/" moves to the search field, as in many other consoles.
document.addEventListener("keydown", (event) => {
  const field = document.getElementById("q");
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (event.key === "/" && field && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    field.focus();
  }
});

// Rows of records, text alone.
const table = document.getElementById("records");
const cell = (row, text, name) => {
  const made = document.createElement("td");
  made.textContent = text;
  if (name) made.className = name;
  row.append(made);
};
const line = (row, text, details, name) => {
  const made = document.createElement("td");
  const held = document.createElement(details ? "summary" : "div");
  held.textContent = text;
  held.className = "value line";
  if (name) made.className = name;
  if (details) details.append(held);
  made.append(details || held);
  row.append(made);
};
const shown = (bytes) => (bytes.text === null ? "null" : bytes.text + (bytes.is_cut ? " …" : ""));
const rowOf = (record) => {
  const row = document.createElement("tr");
  cell(row, record.partition, "number");
  const place = document.createElement("th");
  place.scope = "row";
  place.className = "number";
  const link = document.createElement("a");
  link.textContent = record.offset;
  link.href = table.dataset.page + "?" + new URLSearchParams({
    partition: record.partition, begin: "offset", at: record.offset, limit: 1, whole: "yes", isolation: table.dataset.isolation,
  });
  place.append(link);
  row.append(place);
  cell(row, record.timestamp < 0 ? "–" : new Date(record.timestamp).toISOString().replace("T", " ").replace("Z", ""), "nowrap wide");
  line(row, shown(record.key));
  line(row, shown(record.value) + (record.notes ? "\n" + record.notes : ""), document.createElement("details"));
  line(row, record.headers.map((each) => each.join(": ")).join("\n"), null, "wide");
  return row;
};

// The search through a whole topic: the best rows so far in their order, and how far it is.
const searchButton = document.getElementById("search");
if (searchButton && window.EventSource) {
  const state = document.getElementById("search-state");
  const progress = document.getElementById("search-progress");
  const body = table.tBodies[0];
  let sign = -1;
  const label = searchButton.textContent;
  let source = null;
  let found = [];
  const before = (a, b) => sign * (a.timestamp - b.timestamp) || a.partition - b.partition || sign * (a.offset - b.offset);
  const add = (record) => {
    const at = found.findIndex((each) => before(record, each) < 0);
    found.splice(at < 0 ? found.length : at, 0, record);
    body.insertBefore(rowOf(record), at < 0 ? null : body.rows[at]);
    if (found.length > table.dataset.limit) {
      found.pop();
      body.rows[body.rows.length - 1].remove();
    }
  };
  const stop = () => {
    source.close();
    source = null;
    searchButton.textContent = label;
    progress.hidden = true;
  };
  searchButton.hidden = false;
  searchButton.addEventListener("click", () => {
    if (source) {
      stop();
      state.textContent += ", stopped";
      return;
    }
    // What stands in the form is searched for, whether or not the page was read with it.
    const query = new URLSearchParams(new FormData(searchButton.form));
    query.delete("at");
    query.set("limit", table.dataset.limit);
    if (!/^(newest|oldest)$/.test(query.get("begin"))) query.delete("begin");
    [...query].forEach(([name, value]) => value === "" && query.delete(name));
    sign = query.get("begin") === "oldest" ? 1 : -1;
    source = new EventSource(searchButton.dataset.search.split("?")[0] + "?" + query);
    searchButton.textContent = "Stop the search";
    progress.hidden = false;
    body.replaceChildren();
    found = [];
    state.textContent = "Searching";
    source.addEventListener("message", (event) => {
      const seen = JSON.parse(event.data);
      seen.records.forEach(add);
      progress.max = seen.of_offsets || 1;
      progress.value = seen.offsets;
      const share = seen.of_offsets ? Math.floor(100 * seen.offsets / seen.of_offsets) : 100;
      const mebibytes = seen.bytes / 1048576;
      state.textContent = found.length + " found, " + share + " % searched, " + mebibytes.toFixed(1) + " MiB in " +
        (seen.ms / 1000).toFixed(1) + " s" + (seen.end ? ": " + seen.end : "") + seen.errors.map((each) => "; " + each).join("");
      if (seen.end) stop();
    });
    source.addEventListener("error", () => {
      stop();
      state.textContent = "The search was refused or cut off: Read shows why";
    });
  });
}

// The live tail of a topic: new rows on top, at most 500 of them.
const follow = document.getElementById("follow");
if (follow && window.EventSource) {
  const state = document.getElementById("follow-state");
  const body = table.tBodies[0];
  let source = null;
  let seen = 0;
  const stop = () => {
    source.close();
    source = null;
    follow.setAttribute("aria-pressed", "false");
    follow.textContent = "Follow new records";
  };
  follow.hidden = false;
  follow.addEventListener("click", () => {
    if (source) {
      stop();
      return;
    }
    source = new EventSource(follow.dataset.tail);
    follow.setAttribute("aria-pressed", "true");
    follow.textContent = "Stop following";
    state.textContent = "Waiting for records";
    source.addEventListener("message", (event) => {
      const data = JSON.parse(event.data);
      data.records.forEach((record) => body.prepend(rowOf(record)));
      while (body.rows.length > 500) body.rows[body.rows.length - 1].remove();
      seen += data.records.length;
      state.textContent = seen + " new records" + (data.left_out ? ", the last event left out " + data.left_out : "") +
        data.errors.map((each) => "; " + each).join("");
    });
    source.addEventListener("error", () => {
      state.textContent = source.readyState === EventSource.CLOSED ? "The tail was refused" : "Connecting again";
    });
  });
}
