// A storm: things that are killed and started again, each for itself and at random moments.

import { setTimeout as pause } from "node:timers/promises";

export class Storm {
  /** How often each was killed, by its name. */
  kills = {};
  /** Why it ended by itself, if something could not be killed or started. */
  failure;
  #random;
  #raging = true;
  #calm; // what is done meanwhile
  #loops = [];

  /** One whose moments are chosen by `random` (seed.js). */
  constructor(random) {
    this.#random = random;
  }

  /** Whether it goes on. */
  get raging() {
    return this.#raging;
  }

  /** Kills something about every `every` ms, and starts it again after up to `down` ms. */
  disturb(name, { every, down, kill, start }) {
    this.kills[name] = 0;
    const loop = async () => {
      for (;;) {
        await pause(every / 2 + this.#random.below(every));
        while (this.#calm) await this.#calm.catch(() => {}); // calm tells it
        if (!this.#raging) return;
        await kill();
        this.kills[name]++;
        await pause(this.#random.below(down));
        await start();
      }
    };
    const running = loop();
    running.catch((err) => (this.failure = err)); // end tells it
    this.#loops.push(running);
  }

  /** Does something while nothing is killed, and gives its answer: what is down then starts. */
  async calm(act) {
    this.#calm = act();
    try {
      return await this.#calm;
    } finally {
      this.#calm = undefined;
    }
  }

  /** Ends it: everything runs. */
  async end() {
    this.#raging = false;
    await Promise.all(this.#loops);
  }
}
