// Replaces the live part of the page with what the server sends, and keeps what is open and what has the focus.
// Without this script the pages work; they show what was there when they were loaded.
"use strict";

const live = document.getElementById("live");
const connection = document.getElementById("connection");

function say(problem) {
  connection.textContent = problem;
  connection.hidden = !problem;
}

function replace(html) {
  const open = [...live.querySelectorAll("details[open]")].map((each) => each.id);
  const active = document.activeElement;
  const focused = live.contains(active) ? (active.closest("[id]") || {}).id : null;
  live.innerHTML = html; // The server has escaped it.
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused && focused !== "live") {
    const again = document.getElementById(focused);
    (again?.querySelector("summary") || again)?.focus({ preventScroll: true });
  }
}

let source = null;

// Only what is seen is followed: a browser makes six connections to a host in all, and a seventh tab would wait.
function followIfSeen() {
  source?.close();
  if (document.hidden) return;
  source = new EventSource(live.dataset.live);
  source.onmessage = (event) => {
    say("");
    // What is being read or copied is not taken away.
    if (!String(document.getSelection())) replace(JSON.parse(event.data));
  };
  source.addEventListener("problem", (event) => say(JSON.parse(event.data)));
  source.onerror = () => say("The console does not answer: this is the last it has shown.");
}

if (live) {
  document.addEventListener("visibilitychange", followIfSeen);
  followIfSeen();
}

addEventListener("keydown", ({ key }) => {
  if (key === "Escape") for (const each of document.querySelectorAll("details[open]")) each.removeAttribute("open");
});

for (const form of document.querySelectorAll("form.break")) {
  form.addEventListener("submit", () => {
    const button = form.querySelector("button");
    button.setAttribute("aria-busy", "true");
    setTimeout(() => (button.disabled = true));
  });
}
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("button[aria-busy]")) {
    button.removeAttribute("aria-busy");
    button.disabled = false;
  }
});
