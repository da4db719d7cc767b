// Renews the parts of a page when the store says that something changed, and opens the dialogs of acts.
"use strict";
const base = document.body.dataset.base, token = document.body.dataset.token;
const live = document.querySelector(".live"), outcome = document.querySelector(".outcome"), dialog = document.getElementById("act");

async function fetched(address) {
  const answer = await fetch(address, { headers: { accept: "text/html" }, cache: "no-cache" });
  if (answer.redirected || answer.status === 401) { over(); return null; }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  localize(page);
  return page;
}

function over() {
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = "Your session is over: sign in again";
  live.replaceChildren(link);
  news?.close();
}

async function renew() {
  if (dialog.open || document.hidden || selected().length) { missed = true; return; }
  missed = false;
  const page = await fetched(location.href);
  for (const part of page ? document.querySelectorAll("[data-part]") : []) {
    const fresh = page.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!fresh) { location.reload(); return; }
    if (fresh.innerHTML !== part.innerHTML) part.replaceWith(fresh);
  }
}

// A page has clock times; how long ago they were, or how long until they come, is written here each second.
function spelled(seconds) {
  const parts = [];
  let left = Math.floor(Math.abs(seconds));
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
    const count = Math.floor(left / size);
    left %= size;
    if (count || (unit === "s" && !parts.length)) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

// Times are relative, or clock times in UTC or in the time zone of the browser: what the person chose last.
const times = document.querySelector("select.times");
function kept(name) { try { return localStorage.getItem(name); } catch { return null; } }
if (times) times.value = kept("txsaga-times") ?? "ago";

function tick(root) {
  for (const each of root.querySelectorAll("time[data-form]")) {
    const seconds = (Date.now() - new Date(each.dateTime)) / 1000, form = each.dataset.form, length = spelled(seconds);
    const clock = times?.value === "local" ? each.dataset.local : each.dataset.utc;
    const said = form === "for" ? length : seconds >= 0 ? `${length} ago` : `in ${length}`;
    const text = form === "both" ? `${clock} (${said})` : form === "ago" && times && times.value !== "ago" ? clock : said;
    if (each.textContent !== text) each.textContent = text;
  }
}

function localize(root) {
  for (const each of root.querySelectorAll("time")) {
    each.dataset.utc ??= each.textContent;
    each.dataset.local = new Date(each.dateTime).toLocaleString(undefined, { timeZoneName: "short" });
    each.title = `${each.dataset.utc}, ${each.dataset.local}`;
    if (!each.dataset.form) each.textContent = times?.value === "local" ? each.dataset.local : each.dataset.utc;
  }
  tick(root);
}
times?.addEventListener("change", () => {
  localize(document);
  try { localStorage.setItem("txsaga-times", times.value); } catch { /* it is not kept */ }
});
localize(document);
setInterval(() => tick(document), 1000);

// The first change is shown at once, further ones at a slower pace.
const QUICK = 200, PACE = 2000;
let due = null, last = 0, missed = false, news = null;
function soon() {
  due ??= setTimeout(() => { due = null; last = Date.now(); renew().catch(() => {}); }, Math.max(QUICK, last + PACE - Date.now()));
}
function catchUp() { if (missed) soon(); }

function listen() {
  news?.close();
  news = new EventSource(`${base}/api/v1/events`);
  news.addEventListener("change", (event) => {
    const said = JSON.parse(event.data);
    live.textContent = said.away ? `The store is unavailable: ${said.away}` : "Live";
    if (!said.away) soon();
  });
  news.onopen = () => { live.textContent = "Live"; soon(); };
  news.onerror = () => {
    live.textContent = "Not live: the console does not answer.";
    if (news.readyState === EventSource.CLOSED) setTimeout(() => fetched(location.href).then((page) => { if (page) listen(); }, listen), 3000);
  };
}

// A hidden page holds no connection: a browser has only six for a host.
if (token) {
  if (!document.hidden) listen();
  document.addEventListener("visibilitychange", () => { if (document.hidden) { news?.close(); missed = true; } else listen(); });
}

async function open(button) {
  const every = !button.dataset.id && document.querySelector("input.match")?.checked;
  const said = new URLSearchParams(every ? { match: location.search.slice(1) } : { id: button.dataset.id ?? selected(button.dataset.act).join(",") });
  for (const [name, value] of Object.entries(button.dataset)) if (!["act", "id"].includes(name)) said.set(name, value);
  const page = await fetched(`${base}/acts/${button.dataset.act}?${said}`).catch(() => { live.textContent = "The console does not answer; nothing was done."; });
  if (!page) return;
  const form = page.querySelector("form[data-name]"), close = document.createElement("button");
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.replaceChildren(...(form ? [form] : [page.querySelector("main"), close]));
  dialog.showModal();
}

function several(told, refused) {
  const noticed = told.filter((each) => each.done && each.notice), first = refused[0] ?? noticed[0];
  const counts = [`${told.length - refused.length - noticed.length} done`, `${refused.length} refused`];
  if (noticed.length) counts.push(`${noticed.length} without a result`);
  return counts.join(", ") + (first ? `: ${first.told}` : "");
}

async function act(form) {
  const said = Object.fromEntries(new FormData(form));
  const ids = form.dataset.id.split(",");
  if (ids.length > 1) said.ids = ids; else said.id = ids[0];
  const wrong = form.querySelector(".wrong"), button = form.querySelector("button[value=do]");
  button.disabled = true;
  const answer = await fetch(`${base}/api/v1/acts/${form.dataset.name}`, {
    method: "POST", headers: { "content-type": "application/json", "x-txsaga-token": token }, body: JSON.stringify(said),
  }).catch(() => null);
  const told = answer ? await answer.json().catch(() => ({})) : { error: "The console does not answer; look at the transaction before you try again." };
  button.disabled = false;
  if (!answer || !answer.ok) { wrong.textContent = told.error ?? "This did not work."; wrong.hidden = false; return; }
  for (const each of document.querySelectorAll("input.one, input.all, input.match")) each.checked = false;
  document.querySelector(".bulk")?.setAttribute("hidden", "");
  dialog.close();
  const refused = Array.isArray(told) ? told.filter((each) => !each.done) : [];
  outcome.hidden = false;
  outcome.classList.toggle("notice", Boolean(told.notice));
  outcome.textContent = Array.isArray(told) ? several(told, refused) : told.told;
  if (told.group) {
    const link = document.createElement("a");
    link.href = `${base}/groups#group-${encodeURIComponent(told.group)}`; link.textContent = `Group ${told.group}`;
    outcome.append(". ", link);
  }
  last = 0;
  soon();
}

// What is selected, or that part of it that an act fits.
function selected(name) {
  const chosen = [...document.querySelectorAll("input.one:checked")];
  return chosen.filter((each) => !name || each.dataset.fits.split(" ").includes(name)).map((each) => each.value);
}

document.addEventListener("change", (event) => {
  if (event.target.matches("input.all")) for (const each of document.querySelectorAll("input.one")) each.checked = event.target.checked;
  if (event.target.matches("input[name=state]")) event.target.form.requestSubmit();
  if (!selected().length) catchUp();
  const bulk = document.querySelector(".bulk");
  if (!bulk) return;
  bulk.hidden = !selected().length;
  bulk.querySelector("b").textContent = selected().length;
  const match = bulk.querySelector("input.match");
  if (match && bulk.hidden) match.checked = false;
  const every = match?.checked;
  for (const each of bulk.querySelectorAll("button")) {
    const fits = selected(each.dataset.act).length;
    each.hidden = !fits && !every;
    each.querySelector("span").textContent = every || fits === selected().length ? "" : ` (${fits})`;
  }
});

// Without TLS a browser lets no script copy: the text is selected instead.
async function copy(button) {
  if (!navigator.clipboard) { getSelection().selectAllChildren(button.previousElementSibling); return; }
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.act) open(button);
  if (button.dataset.copy) copy(button);
});
dialog.addEventListener("submit", (event) => {
  if (event.submitter?.value === "cancel") return;
  event.preventDefault();
  act(event.target);
});
dialog.addEventListener("close", catchUp);
const saved = document.querySelector(".saved");
function names() { try { return JSON.parse(localStorage.getItem("txsaga-searches") ?? "{}"); } catch { return {}; } }
function show() {
  if (!saved) return;
  saved.replaceChildren(...Object.entries(names()).map(([name, query]) => {
    const link = document.createElement("a");
    link.textContent = name; link.href = `${base}/${query}`;
    const forget = document.createElement("button");
    forget.textContent = "×"; forget.className = "plain"; forget.setAttribute("aria-label", `Delete the search ${name}`);
    forget.addEventListener("click", () => { const { [name]: gone, ...rest } = names(); localStorage.setItem("txsaga-searches", JSON.stringify(rest)); show(); });
    const both = document.createElement("span");
    both.append(link, forget);
    return both;
  }));
}
show();
document.querySelector(".save")?.addEventListener("click", () => {
  const name = document.querySelector("input.save-as").value.trim();
  if (!name) return;
  localStorage.setItem("txsaga-searches", JSON.stringify({ ...names(), [name]: location.search }));
  show();
});

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { const search = document.getElementById("search"); if (search) { event.preventDefault(); search.focus(); } }
  const rows = [...document.querySelectorAll("table.rows tbody a")], at = rows.indexOf(document.activeElement);
  if (event.key === "j") rows[Math.min(at + 1, rows.length - 1)]?.focus();
  if (event.key === "k") rows[Math.max(at - 1, 0)]?.focus();
});
