import { MantineProvider, localStorageColorSchemeManager } from "@mantine/core";
import { I18nextProvider } from "react-i18next";
import type { i18n } from "i18next";
import type { StoreApi } from "zustand/vanilla";
import { ConsoleProvider, type Console } from "../store/console.js";
import { Shell } from "./Shell.js";
import { styleNonce, theme } from "./theme.js";
import { UiProvider, type UiState } from "./ui.js";

const schemes = localStorageColorSchemeManager({ key: "stepccl.color-scheme" });

export interface AppProps {
  console: Console;
  ui: StoreApi<UiState>;
  i18n: i18n;
}

export function App({ console, ui, i18n }: AppProps) {
  return (
    <MantineProvider theme={theme} defaultColorScheme="auto" colorSchemeManager={schemes} withCssVariables={false} withGlobalClasses={false} getStyleNonce={styleNonce}>
      <I18nextProvider i18n={i18n}>
        <ConsoleProvider console={console}>
          <UiProvider ui={ui}>
            <Shell />
          </UiProvider>
        </ConsoleProvider>
      </I18nextProvider>
    </MantineProvider>
  );
}
