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
