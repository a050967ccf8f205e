/** What components take from the stores, in one place. */
export { useConsole, useHost, useNow, useTelemetryVersion } from "./console.js";
export { useIds, useItem, useItems, useLoaded } from "./keyed.js";
