// A list of ids in byte order. Ids are of ASCII, so that strings compare as bytes do.

export class Order {
  ids = [];

  // The place of an id: where it is, or where it would go.
  place(id) {
    const { ids } = this;
    let low = 0;
    let high = ids.length;
    if (high > 0 && ids[high - 1] < id) return high; // what is new mostly goes to the end
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ids[middle] < id) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  has(id) {
    return this.ids[this.place(id)] === id;
  }

  // Puts an id in and gives the one that it now stands before; undefined at the end.
  add(id) {
    const at = this.place(id);
    if (this.ids[at] !== id) this.ids.splice(at, 0, id);
    return this.ids[at + 1];
  }

  remove(id) {
    const at = this.place(id);
    if (this.ids[at] === id) this.ids.splice(at, 1);
  }
}
