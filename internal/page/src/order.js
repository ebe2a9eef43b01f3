// A list of ids in the order of their positions: numbers in a block's data-ord
// ("12.0"), fixed when its key was first put. Equal positions are ordered by id, in
// ASCII, so that strings compare like bytes.

const none = [0, 0];

export const placeOf = (element, ord = element?.getAttribute("data-ord")) => {
  if (!ord) return none;
  const dot = ord.indexOf(".");
  return [Number(ord.slice(0, dot)), Number(ord.slice(dot + 1))];
};

// Whether a position is before another, which is text.
export const precedes = (place, ord) => {
  const other = placeOf(undefined, ord);
  return (place[0] - other[0] || place[1] - other[1]) < 0;
};

const compare = (a, b) => a.ord[0] - b.ord[0] || a.ord[1] - b.ord[1] || (a.id < b.id ? -1 : Number(a.id > b.id));

export class Order {
  #list = []; // {id, ord}
  #by = new Map(); // id → the same

  get size() {
    return this.#list.length;
  }

  // The position of the first; undefined if there is none.
  get first() {
    return this.#list[0]?.ord;
  }

  #place(item) {
    const list = this.#list;
    let low = 0;
    let high = list.length;
    if (high > 0 && compare(list[high - 1], item) < 0) return high; // new ones mostly go to the end
    while (low < high) {
      const middle = (low + high) >> 1;
      if (compare(list[middle], item) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // Inserts or moves an id, and returns the one after it; undefined
  // at the end.
  add(id, ord = none) {
    this.remove(id);
    const item = { id, ord };
    const at = this.#place(item);
    this.#list.splice(at, 0, item);
    this.#by.set(id, item);
    return this.#list[at + 1]?.id;
  }

  remove(id) {
    const item = this.#by.get(id);
    if (!item) return;
    this.#list.splice(this.#place(item), 1);
    this.#by.delete(id);
  }
}
