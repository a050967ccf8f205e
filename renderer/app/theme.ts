import {
  Button, Checkbox, Drawer, Menu, Modal, NativeSelect, NumberInput, PasswordInput, Popover, SegmentedControl, Tabs, Textarea, TextInput, Tooltip, ActionIcon,
  convertCssVariables, createTheme, defaultCssVariablesResolver, DEFAULT_THEME, mergeMantineTheme, type CSSVariablesResolver,
} from "@mantine/core";

const FONT = '"Inter", system-ui, -apple-system, "Segoe UI", "Noto Sans", "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", "DejaVu Sans", sans-serif';
const MONO = 'ui-monospace, "SF Mono", "Cascadia Mono", "JetBrains Mono", "DejaVu Sans Mono", "Noto Sans Mono CJK SC", monospace';

/** Dense: 13 px text, 28 px controls. Shades are chosen so that text reaches WCAG AA (4.5:1) on every surface that we use. */
export const theme = createTheme({
  fontFamily: FONT,
  fontFamilyMonospace: MONO,
  fontSizes: { xs: "0.75rem", sm: "0.8125rem", md: "0.875rem", lg: "1rem", xl: "1.125rem" },
  headings: { fontFamily: FONT, fontWeight: "600" },
  // A slate with a little blue instead of the neutral greys: the surfaces of global.css continue it.
  colors: { dark: ["#dde1e6", "#b6bdc5", "#8b939b", "#6b737c", "#48515b", "#343b44", "#242930", "#191d22", "#14171b", "#0f1215"] },
  primaryColor: "blue",
  primaryShade: { light: 8, dark: 8 },
  defaultRadius: "sm",
  cursorType: "pointer",
  respectReducedMotion: true,
  components: {
    Button: Button.extend({ defaultProps: { size: "xs" } }),
    ActionIcon: ActionIcon.extend({ defaultProps: { variant: "subtle", color: "gray" } }),
    TextInput: TextInput.extend({ defaultProps: { size: "xs", autoComplete: "off", spellCheck: false } }),
    PasswordInput: PasswordInput.extend({ defaultProps: { size: "xs", autoComplete: "off" } }),
    NumberInput: NumberInput.extend({ defaultProps: { size: "xs" } }),
    NativeSelect: NativeSelect.extend({ defaultProps: { size: "xs" } }),
    Textarea: Textarea.extend({ defaultProps: { size: "xs", spellCheck: false } }),
    Checkbox: Checkbox.extend({ defaultProps: { size: "xs" } }),
    SegmentedControl: SegmentedControl.extend({ defaultProps: { size: "xs" } }),
    Tabs: Tabs.extend({ defaultProps: { keepMounted: false } }),
    // Scroll locking would insert a <style>, which the CSP forbids; the body never scrolls here.
    Modal: Modal.extend({ defaultProps: { lockScroll: false, centered: true, transitionProps: { duration: 80 }, overlayProps: { backgroundOpacity: 0.4 } } }),
    Drawer: Drawer.extend({ defaultProps: { lockScroll: false, position: "right", transitionProps: { duration: 80 }, overlayProps: { backgroundOpacity: 0.25 } } }),
    Menu: Menu.extend({ defaultProps: { transitionProps: { duration: 60 }, shadow: "md" } }),
    Popover: Popover.extend({ defaultProps: { transitionProps: { duration: 60 } } }),
    Tooltip: Tooltip.extend({ defaultProps: { openDelay: 400, transitionProps: { duration: 60 } } }),
  },
});

const resolver: CSSVariablesResolver = (merged) => {
  const base = defaultCssVariablesResolver(merged);
  return {
    variables: base.variables,
    light: { ...base.light, "--mantine-color-dimmed": "#50585f", "--mantine-color-placeholder": "#6b737b", "--mantine-color-error": "#c02020", "--mantine-color-text": "#16191d" },
    dark: {
      ...base.dark, "--mantine-color-dimmed": "#a3abb3", "--mantine-color-placeholder": "#8b939b", "--mantine-color-error": "#ff8787",
      "--mantine-color-body": "#15181c", "--mantine-color-text": "#dde1e6", "--mantine-color-default": "#20242a", "--mantine-color-default-border": "#3d444d", "--mantine-color-default-hover": "#2a3038",
    },
  };
};

/**
 * Mantine writes its variables into a <style>, which a strict CSP refuses without a nonce. A constructed sheet needs none, so
 * the provider runs with withCssVariables={false} and this adopts the same variables before the first render.
 */
export function adoptThemeVariables(document: Document): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(convertCssVariables(resolver(mergeMantineTheme(DEFAULT_THEME, theme))));
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}

/** Where a host gives a nonce all the same, Mantine's few dynamic styles use it. */
export const styleNonce = (): string => document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
