import "./client/zod-without-eval.js";
import "@mantine/core/styles.layer.css";
import "./app/global.css";
import { createRoot } from "react-dom/client";
import type { Carrier } from "../electron/contract/index.js";
import { App } from "./app/App.js";
import { adoptThemeVariables } from "./app/theme.js";
import { createUi } from "./app/ui.js";
import { Client } from "./client/client.js";
import { connect } from "./client/connect.js";
import { openSession } from "./client/session.js";
import { createI18n, initialLanguage } from "./i18n/index.js";
import { createConsole } from "./store/console.js";

async function carrier(): Promise<Carrier & { reconnectNow?: () => void }> {
  // Only `vite --mode fake`: the branch and the file behind it are not in a production build (dev/production.test.ts).
  if (import.meta.env.MODE === "fake") return (await import("./dev/fake-host.js")).fakeCarrier(window.location.search);
  return connect(window);
}

async function start(): Promise<void> {
  adoptThemeVariables(document);
  const i18n = createI18n(initialLanguage());
  const root = createRoot(document.getElementById("root")!);
  const refused = window.stepccl ? null : await openSession(window.location, window.history);
  const wire = await carrier();
  const client = new Client(wire, { validate: !import.meta.env.PROD });
  const console = createConsole(client, wire.reconnectNow?.bind(wire));
  // A used token is no harm where an earlier visit left a cookie: then the connection opens and this is forgotten.
  if (refused) console.host.setState({ error: refused });
  root.render(<App console={console} ui={createUi()} i18n={i18n} />);
}

void start();
