"use strict";
// Finds a sequence in the arrays of the page; #sequence=I searches when the page opens.
const places = JSON.parse(document.getElementById("places").textContent);

function decodeInt32(base64) {
  if (base64 === undefined) return null;
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Array.from({ length: bytes.length / 4 }, (_, i) => view.getInt32(4 * i, true));
}

const lengths = decodeInt32(places.lengths);
const batches = decodeInt32(places.batches);
const rows = decodeInt32(places.rows);
const pieces = decodeInt32(places.pieces);
const visits = decodeInt32(places.visits);
const documents = decodeInt32(places.documents);

function findLast(entries, document_) {
  let found = null;
  for (const entry of entries) {
    if (entry[1] > document_) break;
    found = entry;
  }
  return found;
}

function describe(index) {
  const parts = [`sequence ${index.toLocaleString("en")}`];
  if (index >= places.num_sequences) {
    return [`no sequence ${index.toLocaleString("en")}: there are ` +
      `${places.num_sequences.toLocaleString("en")}, counted from 0`];
  }
  if (index >= places.num_sent) {
    return [...parts, `not in this page, which has the first ${places.num_sent.toLocaleString("en")}`];
  }
  if (lengths[index] < 0) return [...parts, `not in these shards: ${places.missing}`];
  if (visits && visits[index] > 1) {
    parts.push(`packed ${visits[index].toLocaleString("en")} times, first in`);
  }
  if (pieces && pieces[index] > 1) {
    parts.push(`split into ${pieces[index].toLocaleString("en")} pieces, the first in`);
  }
  if (batches) {
    parts.push(`batch ${batches[index].toLocaleString("en")}`);
    if (rows) parts.push(`${places.row_name} ${rows[index].toLocaleString("en")}`);
  }
  parts.push(`${lengths[index].toLocaleString("en")} ${lengths[index] === 1 ? "token" : "tokens"}`);
  if (documents && documents[index] >= 0) {
    const store = findLast(places.stores, documents[index]);
    const inStore = documents[index] - (store ? store[1] : 0);
    if (store) parts.push(`token store ${store[0]}`);
    parts.push(`document ${inStore.toLocaleString("en")}`);
    const source = findLast(places.sources, documents[index]);
    if (source) {
      parts.push(`${source[0]}, record ${(documents[index] - source[1] + 1).toLocaleString("en")}`);
    }
  }
  return parts;
}

function show(text) {
  const result = document.getElementById("search-result");
  document.querySelectorAll("article.found").forEach((row) => row.classList.remove("found"));
  const digits = text.replace(/[,\s]/g, "");
  if (!/^\d{1,15}$/.test(digits)) {
    result.textContent = "enter the index of a sequence: 0, 1, 2, …";
    return;
  }
  const index = Number(digits);
  result.textContent = describe(index).join(" · ");
  if (index >= places.num_sequences) return;
  const row = document.getElementById(`sequence-${index}`);
  if (row) {
    row.classList.add("found");
    const link = document.createElement("a");
    link.href = `#sequence-${index}`;
    link.textContent = "shown below";
    result.append(" · ", link);
  } else if (places.command) {
    const command = document.createElement("code");
    command.textContent = `${places.command} --sequence ${index}`;
    result.append(" · its text: ", command);
  }
}

function answerHash() {
  const asked = /^#sequence=(.*)$/.exec(location.hash);
  if (!asked) return;
  let text = asked[1];
  try {
    text = decodeURIComponent(text);
  } catch {
    // not percent-encoded
  }
  document.getElementById("search-index").value = text;
  show(text);
}

// Sorts the batches by a column; a second click reverses the order.
function sortBy(head, column) {
  const body = head.closest("table").tBodies[0];
  const falls = head.getAttribute("aria-sort") !== "descending";
  const read = (row) => Number(row.cells[column].dataset.value);
  const sorted = Array.from(body.rows).sort((a, b) => (falls ? -1 : 1) * (read(a) - read(b)));
  head.closest("tr").querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", falls ? "descending" : "ascending");
  body.append(...sorted);
}

// Marks the sides on which a table or chart goes on; page.css fades them.
function markEdges(box) {
  const { scrollTop, scrollLeft, clientHeight, clientWidth, scrollHeight, scrollWidth } = box;
  box.classList.toggle("more-below", scrollTop + clientHeight + 1 < scrollHeight);
  box.classList.toggle("more-right", scrollLeft + clientWidth + 1 < scrollWidth);
}

function markAllEdges() {
  boxes.forEach(markEdges);
}

const boxes = document.querySelectorAll(".scroll, .drawing");
boxes.forEach((box) => box.addEventListener("scroll", () => markEdges(box)));
addEventListener("resize", markAllEdges);
markAllEdges();

document.getElementById("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = document.getElementById("search-index").value;
  history.replaceState(null, "", `#sequence=${encodeURIComponent(text)}`);
  show(text);
});
document.querySelectorAll("#batches th").forEach((head, column) => {
  head.addEventListener("click", () => sortBy(head, column));
});
addEventListener("hashchange", answerHash);
answerHash();
