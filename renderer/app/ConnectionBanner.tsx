import { Button } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import IconPlugConnectedX from "@tabler/icons-react/icons/IconPlugConnectedX";
import { ErrorNote } from "../shared/ErrorNote.js";
import { duration } from "../shared/format.js";
import { useConsole, useHost, useNow } from "../store/console-hooks.js";
import css from "./app.module.css";

/** Below this a lost connection is not worth a banner: a reload of the host is over by then. */
const QUIET_MS = 800;

/** Says that what is shown is old, since when, and what to do. Lies over the page's lower edge, so nothing moves. */
export function ConnectionBanner() {
  const { t } = useTranslation();
  const { reconnectNow } = useConsole();
  const connection = useHost((s) => s.connection);
  const lostAtMs = useHost((s) => s.lostAtMs);
  const error = useHost((s) => s.error);
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (connection === "open") {
      setShown(false);
      return;
    }
    const timer = setTimeout(() => setShown(true), QUIET_MS);
    return () => clearTimeout(timer);
  }, [connection]);
  if (connection !== "open" && shown) {
    return (
      <div className={css.banner} role="status" data-testid="connection-banner">
        <IconPlugConnectedX size={16} aria-hidden />
        {error?.code === "P104" ? <ErrorNote error={error} /> : <span>
          <strong>{t("connection.lost")}</strong> {lostAtMs !== null && <Since atMs={lostAtMs} />} {t("connection.hint")}
        </span>}
        <span className="spacer" />
        {reconnectNow && <Button variant="default" size="compact-xs" onClick={reconnectNow}>{t("connection.reconnect")}</Button>}
      </div>
    );
  }
  return connection === "open" && error && error.code !== "P101" ? <div className={css.bannerError}><ErrorNote error={error} /></div> : null;
}

function Since({ atMs }: { atMs: number }) {
  const { t } = useTranslation();
  useNow();
  return <span>{t("connection.since", { duration: duration(Math.max(0, Date.now() - atMs)) })}</span>;
}
