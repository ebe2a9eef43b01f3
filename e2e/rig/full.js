// How much a test does: less by default than with FULL=1.

export { full } from "../../clients/js/dist/test/full.js";
