// What the pages do in the browser: live parts that change in place, keys, the theme, copying. No other host is asked.
"use strict";

const ottla = (() => {
  // Live parts. The new markup is laid over what is there: elements that are still the same stay, with their focus,
  // and attributes that changed move (the style sheet lets bars grow). Elements are the same if their `data-key` is,
  // or, without one, if they stand at the same place.
  function show(id, markup) {
    const element = document.getElementById(id);
    if (!element) return;
    const fresh = document.createElement("template");
    fresh.innerHTML = markup;
    children(element, fresh.content);
  }

  function keyOf(node) {
    return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
  }

  function children(old, fresh) {
    const known = new Map();
    for (const node of old.childNodes) if (keyOf(node) !== null) known.set(keyOf(node), node);
    let at = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const key = keyOf(wanted);
      let found = key !== null ? known.get(key) : at;
      if (key === null) while (found && keyOf(found) !== null) found = found.nextSibling;
      if (found && found.nodeName === wanted.nodeName) {
        known.delete(key);
        if (found !== at) old.insertBefore(found, at);
        else at = at.nextSibling;
        update(found, wanted);
      } else {
        old.insertBefore(wanted, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function update(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    const kept = old.nodeName === "DETAILS" ? "open" : null; // The person opened it.
    for (const { name } of [...old.attributes]) if (name !== kept && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) {
      if (name !== kept && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    children(old, fresh);
  }

  // The theme: as the system says, until somebody chooses.
  const themes = ["", "light", "dark"];
  function theme() {
    try {
      return localStorage.getItem("ottla-theme") || "";
    } catch {
      return "";
    }
  }
  function applyTheme() {
    document.documentElement.dataset.theme = theme();
    const dark = theme() ? theme() === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    if (window.Quasar) window.Quasar.Dark.set(dark);
  }
  function nextTheme() {
    try {
      localStorage.setItem("ottla-theme", themes[(themes.indexOf(theme()) + 1) % themes.length]);
    } catch {
      return;
    }
    applyTheme();
    say(`Theme: ${theme() || "as the system"}`);
  }
  document.documentElement.dataset.theme = theme();
  addEventListener("load", () => setTimeout(applyTheme, 0));
  // Where the way around is a row, the page that is open may be beyond its edge.
  addEventListener("load", () => document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);

  function say(text) {
    let place = document.getElementById("said");
    if (!place) {
      place = document.createElement("div");
      place.id = "said";
      place.setAttribute("role", "status");
      document.body.append(place);
    }
    place.textContent = text;
    place.classList.add("seen");
    clearTimeout(say.timer);
    say.timer = setTimeout(() => place.classList.remove("seen"), 1600);
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      say("Copied");
    } catch {
      say("The browser does not let pages copy here");
    }
  }

  function help() {
    let dialog = document.getElementById("keys");
    if (!dialog) {
      dialog = document.createElement("dialog");
      dialog.id = "keys";
      const title = document.createElement("h2");
      title.textContent = "Keys";
      const list = document.createElement("dl");
      const rows = [
        ["?", "this list"],
        ["/", "the filter"],
        ["d", "theme: light, dark, as the system"],
        ["Esc", "close"],
      ];
      for (const link of document.querySelectorAll("a[data-shortcut]")) {
        rows.push([`g ${link.dataset.shortcut}`, link.firstChild.textContent]);
      }
      for (const [keys, meaning] of rows) {
        const term = document.createElement("dt");
        const key = document.createElement("kbd");
        key.textContent = keys;
        term.append(key);
        const what = document.createElement("dd");
        what.textContent = meaning;
        list.append(term, what);
      }
      const close = document.createElement("button");
      close.textContent = "Close";
      close.addEventListener("click", () => dialog.close());
      dialog.append(title, list, close);
      document.body.append(dialog);
    }
    dialog.open ? dialog.close() : dialog.showModal();
  }

  const actions = { theme: nextTheme, help };
  addEventListener("click", (event) => {
    const button = event.target.closest?.("button[data-action], button[data-copy], button[data-event]");
    if (!button) return;
    if (button.dataset.event !== undefined) {
      emitEvent(button.dataset.event, button.dataset.row);
    } else if (button.dataset.copy !== undefined) {
      copy(document.getElementById(button.dataset.copy)?.textContent ?? "");
    } else {
      actions[button.dataset.action]?.();
    }
  });

  let going = -Infinity;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input, textarea, select, [contenteditable], dialog, .q-dialog")) return;
    if (event.timeStamp - going < 1500 && event.key !== "g") {
      going = -Infinity;
      const link = [...document.querySelectorAll("a[data-shortcut]")].find((each) => each.dataset.shortcut === event.key);
      if (link) {
        event.preventDefault();
        link.click();
      }
      return;
    }
    if (event.key === "g") {
      // `g g` is a page too.
      if (event.timeStamp - going < 1500) document.querySelector('a[data-shortcut="g"]')?.click();
      going = event.timeStamp;
    } else if (event.key === "?") help();
    else if (event.key === "d") nextTheme();
    else if (event.key === "/") {
      const field = document.querySelector('[data-action="filter"]');
      if (field) {
        event.preventDefault();
        field.focus();
        field.select();
      }
    }
  });

  return { show, say };
})();
