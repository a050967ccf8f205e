import * as lab from "./lab/lab.js";

export default async function globalTeardown(): Promise<void> {
  await lab.down();
}
