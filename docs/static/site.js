"use strict";

// Return the text of a block of code; of a console, only the commands.
function text(block) {
  const code = block.querySelector("pre").textContent;
  if (!block.closest(".highlight-console")) return code;
  return [...code.matchAll(/^\$ ((?:.*\\\n)*.*\n?)/gm)].map((command) => command[1]).join("");
}

for (const block of document.querySelectorAll("div.highlight")) {
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text(block));
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  block.append(button);
}

// On a phone, a row is a block: each cell says which column it is. Tables of figures are not changed.
for (const table of document.querySelectorAll("table.docutils")) {
  const headings = [...table.querySelectorAll("thead th")].map((heading) => heading.textContent.trim());
  if (headings.length > 4) continue;
  table.classList.add("rows");
  for (const row of table.querySelectorAll("tbody tr")) {
    [...row.cells].forEach((cell, column) => (cell.dataset.heading = headings[column]));
  }
}
