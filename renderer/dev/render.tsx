import { MantineProvider } from "@mantine/core";
import { render, type RenderResult } from "@testing-library/react";
import type { ReactNode } from "react";
import { I18nextProvider } from "react-i18next";
import { theme } from "../app/theme.js";
import { createUi, UiProvider } from "../app/ui.js";
import { Client } from "../client/client.js";
import { createI18n, type Language } from "../i18n/index.js";
import { ConsoleProvider, createConsole } from "../store/console.js";
import { FakeHost, type FakeOptions } from "./fake-host.js";

/** Renders a part of the page over a scripted host, with every answer and event checked against the contract. */
export function renderOver(children: ReactNode, options: FakeOptions & { language?: Language } = {}): RenderResult & { host: FakeHost; ui: ReturnType<typeof createUi>; console: ReturnType<typeof createConsole> } {
  const host = new FakeHost({ stepMs: 20, ...options });
  const console = createConsole(new Client(host, { validate: true }));
  const ui = createUi();
  const result = render(
    <MantineProvider theme={theme} env="test" withCssVariables={false} withGlobalClasses={false}>
      <I18nextProvider i18n={createI18n(options.language ?? "en")}>
        <ConsoleProvider console={console}><UiProvider ui={ui}>{children}</UiProvider></ConsoleProvider>
      </I18nextProvider>
    </MantineProvider>,
  );
  return { ...result, host, ui, console };
}
