import { ActionIcon, Loader, Menu, Tooltip, UnstyledButton, useMantineColorScheme } from "@mantine/core";
import { lazy, Suspense, useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import IconAdjustments from "@tabler/icons-react/icons/IconAdjustments";
import IconBell from "@tabler/icons-react/icons/IconBell";
import IconChartLine from "@tabler/icons-react/icons/IconChartLine";
import IconCheck from "@tabler/icons-react/icons/IconCheck";
import IconKeyboard from "@tabler/icons-react/icons/IconKeyboard";
import IconLanguage from "@tabler/icons-react/icons/IconLanguage";
import IconMoon from "@tabler/icons-react/icons/IconMoon";
import IconSearch from "@tabler/icons-react/icons/IconSearch";
import IconStack2 from "@tabler/icons-react/icons/IconStack2";
import IconServer2 from "@tabler/icons-react/icons/IconServer2";
import IconStethoscope from "@tabler/icons-react/icons/IconStethoscope";
import IconSun from "@tabler/icons-react/icons/IconSun";
import IconDeviceDesktop from "@tabler/icons-react/icons/IconDeviceDesktop";
import IconTopologyStar3 from "@tabler/icons-react/icons/IconTopologyStar3";
import { LANGUAGES, type Language } from "../i18n/index.js";
import { AddNodes } from "../nodes/AddNodes.js";
import { HostKeys } from "../nodes/HostKeys.js";
import { NodeDetail } from "../nodes/NodeDetail.js";
import { NodesPage } from "../nodes/NodesPage.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { Shortcut, type Icon } from "../shared/small.js";
import { useConsole, useItems } from "../store/console-hooks.js";
import { Boundary } from "./Boundary.js";
import { ClusterSummary } from "./ClusterSummary.js";
import { ConnectionBanner } from "./ConnectionBanner.js";
import { Palette } from "./Palette.js";
import { hrefOf, PAGES, useRoute, type Page } from "./router.js";
import { PAGE_KEYS } from "./page-keys.js";
import { Shortcuts } from "./Shortcuts.js";
import { useUi } from "./ui.js";
import { useShortcuts } from "./use-shortcuts.js";
import css from "./app.module.css";

// Each comes with the first visit: recharts alone is larger than the rest of the page.
const TopologyPage = lazy(() => import("../topology/TopologyPage.js").then((m) => ({ default: m.TopologyPage })));
const MemoryPage = lazy(() => import("../memory/MemoryPage.js").then((m) => ({ default: m.MemoryPage })));
const CollectivesPage = lazy(() => import("../collectives/CollectivesPage.js").then((m) => ({ default: m.CollectivesPage })));
const DiagnosePage = lazy(() => import("../diagnose/DiagnosePage.js").then((m) => ({ default: m.DiagnosePage })));
const AlertsPage = lazy(() => import("../alerts/AlertsPage.js").then((m) => ({ default: m.AlertsPage })));
const SettingsPage = lazy(() => import("../settings/SettingsPage.js").then((m) => ({ default: m.SettingsPage })));

const ICONS: Record<Page, Icon> = { nodes: IconServer2, topology: IconTopologyStar3, memory: IconStack2, collectives: IconChartLine, diagnose: IconStethoscope, alerts: IconBell, settings: IconAdjustments };
const VIEWS: Record<Page, React.ComponentType> = { nodes: NodesPage, topology: TopologyPage, memory: MemoryPage, collectives: CollectivesPage, diagnose: DiagnosePage, alerts: AlertsPage, settings: SettingsPage };

/** Alerts that last and that nobody has seen. */
function AlertCount() {
  const { t } = useTranslation();
  const { alerts } = useConsole();
  const count = [...useItems(alerts).values()].filter((alert) => alert.endedAtMs === null && alert.acknowledgedAtMs === null).length;
  return count === 0 ? null : <b className={css.badge} role="status" aria-label={t("alerts.unseen", { count })}>{count > 99 ? "99+" : count}</b>;
}

function Navigation() {
  const { t } = useTranslation();
  const { page } = useRoute();
  return (
    <nav className={css.nav} aria-label={t("app.pages")}>
      {PAGES.map((each) => {
        const IconOf = ICONS[each];
        return (
          <Tooltip key={each} label={<>{t(`pages.${each}`)} <Shortcut keys={PAGE_KEYS[each]} /></>} position="right">
            <a href={hrefOf(each)} className={css.navItem} aria-current={each === page ? "page" : undefined}>
              <IconOf size={19} aria-hidden />
              <span>{t(`pages.${each}`)}</span>
              {each === "alerts" && <AlertCount />}
            </a>
          </Tooltip>
        );
      })}
    </nav>
  );
}

const SCHEMES = [["auto", IconDeviceDesktop], ["light", IconSun], ["dark", IconMoon]] as const;

function Preferences() {
  const { t, i18n } = useTranslation();
  // keepTransitions: the alternative inserts a <style>, which the CSP forbids.
  const { colorScheme, setColorScheme } = useMantineColorScheme({ keepTransitions: true });
  const set = useUi((s) => s.set);
  const SchemeIcon = SCHEMES.find(([scheme]) => scheme === colorScheme)?.[1] ?? IconDeviceDesktop;
  return (
    <>
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon aria-label={t("app.colorScheme")}><SchemeIcon size={17} /></ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          {SCHEMES.map(([scheme, IconOf]) => (
            <Menu.Item key={scheme} leftSection={<IconOf size={15} />} rightSection={scheme === colorScheme ? <IconCheck size={14} /> : undefined} onClick={() => setColorScheme(scheme)}>
              {t(`colorSchemes.${scheme}`)}
            </Menu.Item>
          ))}
        </Menu.Dropdown>
      </Menu>
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon aria-label={t("app.language")}><IconLanguage size={17} /></ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          {(Object.keys(LANGUAGES) as Language[]).map((tag) => (
            <Menu.Item key={tag} lang={tag} rightSection={tag === i18n.language ? <IconCheck size={14} /> : undefined} onClick={() => void i18n.changeLanguage(tag)}>
              {LANGUAGES[tag]}
            </Menu.Item>
          ))}
        </Menu.Dropdown>
      </Menu>
      <Tooltip label={<>{t("app.shortcuts")} <Shortcut keys="?" /></>}>
        <ActionIcon aria-label={t("app.shortcuts")} onClick={() => set({ shortcuts: true })}><IconKeyboard size={17} /></ActionIcon>
      </Tooltip>
    </>
  );
}

function Notice() {
  const notice = useUi((s) => s.notice);
  const set = useUi((s) => s.set);
  return notice && <div className={css.notice}><ErrorNote error={notice} onClose={() => set({ notice: null })} /></div>;
}

export function Shell() {
  const { t } = useTranslation();
  const { page } = useRoute();
  const set = useUi((s) => s.set);
  const main = useRef<HTMLElement>(null);
  useShortcuts();
  const View = VIEWS[page];
  const title = t(`pages.${page}`);
  useEffect(() => {
    document.title = `${title} · StepCCL Console`;
  }, [title]);
  return (
    <div className={css.shell}>
      <a href="#main" className={css.skip} onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>{t("app.skip")}</a>
      <header className={css.header}>
        <span className={css.brand}><span className={css.brandMark} aria-hidden /> StepCCL</span>
        <h1 className={css.title}>{title}</h1>
        <ClusterSummary />
        <span className="spacer" />
        <UnstyledButton className={css.search} onClick={() => set({ palette: true })} aria-keyshortcuts="Control+K">
          <IconSearch size={14} aria-hidden /> <span>{t("palette.open")}</span> <Shortcut keys="Ctrl K" />
        </UnstyledButton>
        <Preferences />
      </header>
      <Navigation />
      <main className={css.main} ref={main} tabIndex={-1} id="main">
        <ConnectionBanner />
        <div className={css.page}>
          <Boundary key={page}>
            <Suspense fallback={<div className={css.loading}><Loader size="sm" aria-label={t("common.loading")} /></div>}><View /></Suspense>
          </Boundary>
        </div>
      </main>
      <Palette />
      <Shortcuts />
      <AddNodes />
      <HostKeys />
      <NodeDetail />
      <Notice />
    </div>
  );
}
