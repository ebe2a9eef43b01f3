// Tests that do much do less of it by default, so that all of them are run often: FULL=1 has them do the whole.

/** How much a test does. */
export const full = (usual: number, whole: number): number => (process.env["FULL"] ? whole : usual);
