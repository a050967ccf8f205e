import * as lab from "./lab/lab.js";

/** Starts the lab, unless one is up: a developer's own lab is used and left as it is. */
export default async function globalSetup(): Promise<() => Promise<void>> {
  if ((await lab.status()).phase === "up") return async () => {};
  await lab.up({ nodes: 3, onProgress: (text) => console.log(`lab: ${text}`) });
  return () => lab.down();
}
