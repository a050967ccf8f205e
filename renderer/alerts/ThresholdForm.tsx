import { Button, Checkbox, NumberInput } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { ALERT_RULES, AlertRule, ThresholdChange, type Threshold, type Thresholds } from "../../electron/contract/index.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { useAction } from "../shared/use-action.js";
import { useConsole } from "../store/console-hooks.js";
import { measureText } from "./words.js";
import css from "./alerts.module.css";

function Rule({ rule, now, onSave, busy }: { rule: AlertRule; now: Threshold; onSave(threshold: Threshold): void; busy: boolean }) {
  const { t } = useTranslation();
  const [text, setText] = useState<number | string>(now.value ?? "");
  useEffect(() => setText(now.value ?? ""), [now.value]);
  const { standard, unit } = ALERT_RULES[rule];
  const value = standard === null ? null : text === "" ? null : Number(text);
  const usable = ThresholdChange.safeParse({ rule, enabled: now.enabled, value }).success;
  return (
    <div className={css.rule} data-rule={rule}>
      <Checkbox label={t(`alerts.rules.${rule}`)} checked={now.enabled} disabled={busy} onChange={() => onSave({ enabled: !now.enabled, value: now.value })} />
      {standard !== null && (
        <span className={css.limit}>
          <NumberInput size="xs" w={92} hideControls aria-label={t("alerts.limitOf", { rule: t(`alerts.rules.${rule}`) })} value={text} allowNegative={false} error={!usable} suffix={unit === "ms" ? " ms" : " %"} onChange={setText} />
          {value !== now.value && <Button size="compact-xs" disabled={!usable || busy} onClick={() => onSave({ enabled: now.enabled, value })}>{t("common.save")}</Button>}
          {value === now.value && now.value !== standard && <Button size="compact-xs" variant="subtle" disabled={busy} onClick={() => onSave({ enabled: now.enabled, value: standard })}>{t("alerts.standard", { value: measureText(rule, standard, t) })}</Button>}
        </span>
      )}
      <div className="dim">{t(`alerts.about.${rule}`)}</div>
    </div>
  );
}

/** Where each bound lies; a change holds at once. */
export function ThresholdForm() {
  const { t } = useTranslation();
  const { client } = useConsole();
  const [thresholds, setThresholds] = useState<Thresholds | null>(null);
  const load = useAction(async (signal) => setThresholds(await client.request("alerts.thresholds", {}, { signal })));
  const save = useAction(async (_signal, rule: AlertRule, threshold: Threshold) => setThresholds(await client.request("alerts.setThreshold", { rule, ...threshold })));
  const read = load.run;
  useEffect(() => void read(), [read]);
  return (
    <section className={`panel ${css.thresholds}`} aria-label={t("alerts.thresholds")} data-testid="thresholds">
      <h2 className="panel-title">{t("alerts.thresholds")}</h2>
      {load.error && <ErrorNote error={load.error} />}
      {save.error && <ErrorNote error={save.error} onClose={save.clear} />}
      {thresholds && AlertRule.options.map((rule) => <Rule key={rule} rule={rule} now={thresholds[rule]} busy={save.busy} onSave={(threshold) => void save.run(rule, threshold)} />)}
    </section>
  );
}
