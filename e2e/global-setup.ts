import * as lab from "./lab/lab.js";

export default async function globalSetup(): Promise<void> {
  await lab.up({ nodes: 3, onProgress: (text) => console.log(`lab: ${text}`) });
}
