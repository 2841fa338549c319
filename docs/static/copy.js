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
