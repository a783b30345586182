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

// The live tail of a topic: new rows on top, text alone, at most 500 of them.
const follow = document.getElementById("follow");
if (follow && window.EventSource) {
  const state = document.getElementById("follow-state");
  const body = document.getElementById("records").tBodies[0];
  let source = null;
  let seen = 0;
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
  const show = (record) => {
    const row = document.createElement("tr");
    cell(row, record.partition, "number wide");
    cell(row, record.offset, "number");
    cell(row, record.timestamp < 0 ? "–" : new Date(record.timestamp).toISOString().replace("T", " ").replace("Z", ""), "nowrap wide");
    line(row, shown(record.key));
    line(row, shown(record.value) + (record.notes ? "\n" + record.notes : ""), document.createElement("details"));
    line(row, record.headers.map((each) => each.join(": ")).join("\n"), null, "wide");
    body.prepend(row);
  };
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
      data.records.forEach(show);
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
