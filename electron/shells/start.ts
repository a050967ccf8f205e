import { parseArgs } from "node:util";
import { resolve } from "node:path";
import { toErrorView } from "../contract/index.js";
import { runConsole } from "./desktop-launch.js";
import { endSignal } from "./signals.js";

/** `npm start`: the desktop window where Electron is installed, else the browser shell. */
const { values } = parseArgs({
  options: {
    "data-dir": { type: "string" }, "node-data": { type: "string" }, bundle: { type: "string" }, port: { type: "string" },
    open: { type: "boolean", default: false }, shell: { type: "string" },
  },
});
const dataDir = values["data-dir"] ?? values["node-data"];
const port = values.port === undefined ? undefined : Number(values.port);
const shell = values.shell;
if ((port !== undefined && !(Number.isInteger(port) && port >= 0 && port <= 65_535)) || (shell !== undefined && shell !== "browser" && shell !== "desktop")) {
  console.error("Usage: npm start -- [--data-dir DIR] [--bundle DIR] [--port PORT] [--open] [--shell browser|desktop]");
  process.exit(2);
}
try {
  process.exitCode = await runConsole({
    // A person at a terminal with a display wants to see it; a script says so.
    open: values.open || (process.stdout.isTTY && Boolean(process.env["DISPLAY"] ?? process.env["WAYLAND_DISPLAY"])), ...(dataDir === undefined ? {} : { dataDir: resolve(dataDir) }), ...(values.bundle === undefined ? {} : { bundleDir: resolve(values.bundle) }),
    ...(port === undefined ? {} : { port }), ...(shell === undefined ? {} : { shell }),
  }, endSignal());
} catch (error) {
  const view = toErrorView(error);
  console.error(`${view.code}: ${view.message} ${view.next}`);
  process.exitCode = 1;
}
