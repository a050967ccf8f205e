import { Button, SegmentedControl, TextInput } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { SETTINGS, type Advice, type NodeSettingsView, type SettingName, type SettingValue } from "../../electron/contract/index.js";
import { parseSize } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { Acknowledged, type ProcessAck } from "./Acknowledged.js";
import { common, numberText, parseValue, valueText } from "./words.js";
import css from "./settings.module.css";

export interface Edit {
  /** What stands in the field. */
  text: string;
  /** undefined = not usable as it stands. */
  value: SettingValue | undefined;
}
const editOf = (name: SettingName, value: SettingValue): Edit => ({ text: value === null ? "" : typeof value === "number" ? numberText(name, value) : String(value), value });

interface Props {
  name: SettingName;
  /** The nodes that the page shows now; those whose settings could be read. */
  views: readonly NodeSettingsView[];
  nameOf(nodeId: string): string;
  /** What the processes of these nodes made of it. */
  acks: readonly ProcessAck[];
  edit: Edit | undefined;
  onEdit(edit: Edit | undefined): void;
}

function Current({ name, views, nameOf }: Pick<Props, "name" | "views" | "nameOf">) {
  const { t } = useTranslation();
  const values = views.map((view) => view.values![name]);
  const same = common(values);
  if (views.length === 0) return <>–</>;
  if (same !== undefined) return <>{valueText(name, same, t)}</>;
  const groups = new Map<SettingValue, string[]>();
  for (const view of views) groups.set(view.values![name], [...(groups.get(view.values![name]) ?? []), nameOf(view.nodeId)]);
  return (
    <div className={css.differs}>
      <strong>{t("settings.differs")}</strong>
      {[...groups].map(([value, names]) => <div key={String(value)} title={names.map((each) => oneLine(each)).join(", ")}>{valueText(name, value, t)}: {oneLine(names.slice(0, 3).join(", "), 60)}{names.length > 3 && ` +${names.length - 3}`}</div>)}
    </div>
  );
}

function Recommended({ name, now, advice, onUse }: { name: SettingName; /** Of all nodes alike; undefined where they differ. */ now: SettingValue | undefined; advice: readonly Advice[]; onUse(value: SettingValue): void }) {
  const { t, i18n } = useTranslation();
  const same = common(advice.map((each) => each.value));
  const first = advice[0];
  if (!first) return <>–</>;
  const reason = (each: Advice): string => (i18n.exists(`settings.reasons.${each.reason}`) ? t(`settings.reasons.${each.reason}`, { ...each.params, interpolation: { skipOnVariables: true } }) : each.text);
  const reasons = [...new Set(advice.map(reason))];
  return (
    <>
      <div className={css.recommended}>
        <strong>{same === undefined ? t("settings.byNode") : valueText(name, same, t)}</strong>
        {same !== undefined && same !== now && <Button size="compact-xs" variant="subtle" onClick={() => onUse(same)}>{t("settings.use")}</Button>}
      </div>
      <div className="dim">{reasons.slice(0, 2).join(" ")}</div>
    </>
  );
}

/** One setting over the nodes that are shown: what it is now, what to set, what is recommended and why. */
export function SettingRow({ name, views, nameOf, acks, edit, onEdit }: Props) {
  const { t } = useTranslation();
  const kind = SETTINGS[name];
  const now = common(views.map((view) => view.values![name]));
  const stage = (next: Edit): void => onEdit(next.value !== undefined && next.value === now ? undefined : next);
  const label = t(`settings.names.${name}`);
  return (
    <tr data-setting={name} data-edited={edit !== undefined || undefined}>
      <th scope="row"><div>{label}</div><div className="dim">{t(`settings.about.${name}`)}</div></th>
      <td><Current name={name} views={views} nameOf={nameOf} /><Acknowledged name={name} acks={acks} /></td>
      <td>
        {kind.kind === "switch" ? (
          <SegmentedControl
            size="xs" aria-label={label} disabled={views.length === 0} value={edit ? String(edit.value) : now === undefined ? "" : String(now)}
            onChange={(value) => stage(editOf(name, value === "null" ? null : value === "true"))}
            data={[{ value: "null", label: t("settings.notSet") }, { value: "false", label: t("settings.off") }, { value: "true", label: t("settings.on") }]}
          />
        ) : (
          <TextInput
            size="xs" aria-label={label} disabled={views.length === 0} placeholder={now === undefined ? t("settings.differs") : t("settings.notSet")}
            value={edit ? edit.text : typeof now === "number" ? numberText(name, now) : ""}
            error={edit && edit.value === undefined ? t(kind.powerOfTwo ? "settings.problemPower" : "settings.problem", { min: numberText(name, kind.min), max: numberText(name, kind.max) }) : undefined}
            onChange={(event) => { const text = event.currentTarget.value; stage({ text, value: parseValue(name, text, parseSize) }); }}
          />
        )}
      </td>
      <td><Recommended name={name} now={now} advice={views.map((view) => view.advice[name])} onUse={(value) => stage(editOf(name, value))} /></td>
    </tr>
  );
}
