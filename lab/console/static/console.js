// Asks for the page every second, replaces its live part, and keeps what is open and what has the focus.
// Without this script the pages work; they show what was there when they were loaded.
"use strict";

const live = document.getElementById("live");
const connection = document.getElementById("connection");
let shown = live?.innerHTML;

function replace(html) {
  const open = [...live.querySelectorAll("details[open]")].map((each) => each.id);
  const focused = live.contains(document.activeElement) && document.activeElement.closest("[id]").id;
  live.innerHTML = html; // The server has escaped it.
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  const again = focused && document.getElementById(focused);
  if (again) (again.querySelector("summary") || again).focus({ preventScroll: true });
}

async function look() {
  try {
    const answer = await (await fetch(location.href, { cache: "no-store" })).text();
    const page = new DOMParser().parseFromString(answer, "text/html");
    const html = page.getElementById("live")?.innerHTML;
    connection.textContent = html ? "" : page.querySelector(".problem").textContent;
    // What is being read or copied is not taken away.
    if (html && html !== shown && !String(document.getSelection())) replace((shown = html));
  } catch {
    connection.textContent = "The console does not answer: this is the last it has shown.";
  }
  connection.hidden = !connection.textContent;
}

// Only what is seen is followed.
if (live) setInterval(() => document.hidden || look(), 1000);

for (const form of document.querySelectorAll("form.break")) {
  form.addEventListener("submit", () => form.querySelector("button").setAttribute("aria-busy", "true"));
}
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("button[aria-busy]")) button.removeAttribute("aria-busy");
});
