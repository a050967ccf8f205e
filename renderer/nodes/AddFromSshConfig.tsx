import { Button, Checkbox, Loader, TextInput } from "@mantine/core";
import { useEffect, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import IconFileText from "@tabler/icons-react/icons/IconFileText";
import type { Result } from "../../electron/contract/index.js";
import { matches } from "../app/fuzzy.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { oneLine } from "../shared/printable.js";
import { EmptyState, NodeText } from "../shared/small.js";
import { useAction } from "../shared/use-action.js";
import { useConsole } from "../store/console-hooks.js";
import { AddOutcomes } from "./AddOutcomes.js";
import { useAddMany } from "./use-add.js";
import css from "./nodes.module.css";

/** Rows in the document at once; a config with more is narrowed with the filter. */
const SHOWN = 200;

export function AddFromSshConfig({ onAdded }: { onAdded(ids: string[], allWell: boolean): void }) {
  const { t } = useTranslation();
  const { client } = useConsole();
  const [hosts, setHosts] = useState<Result<"nodes.importable"> | null>(null);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [filter, setFilter] = useState("");
  const load = useAction(async (signal) => setHosts(await client.request("nodes.importable", {}, { signal })));
  const add = useAddMany();
  const { run } = load;
  useEffect(() => void run(), [run]);
  const shown = useMemo(() => (hosts ?? []).filter((host) => matches(filter, `${host.alias} ${host.input.host} ${host.input.user}`)), [hosts, filter]);
  if (load.error) return <div className={css.stack}><ErrorNote error={load.error} /><div className={css.footer}><Button variant="default" onClick={() => void run()}>{t("common.retry")}</Button></div></div>;
  if (hosts === null) return <div className={css.stack}><span><Loader size="xs" /> {t("add.readingConfig")}</span><div><Button variant="default" onClick={load.cancel}>{t("common.cancel")}</Button></div></div>;
  if (hosts.length === 0) return <EmptyState icon={IconFileText} title={t("add.noHosts.title")}>{t("add.noHosts.text")}</EmptyState>;
  const toggle = (alias: string) => {
    const next = new Set(chosen);
    if (!next.delete(alias)) next.add(alias);
    setChosen(next);
  };
  const all = shown.every((host) => chosen.has(host.alias));
  const inputs = hosts.filter((host) => chosen.has(host.alias)).map((host) => host.input);
  return (
    <div className={css.stack}>
      <div className="toolbar">
        <Checkbox label={t("add.all", { count: shown.length })} checked={all} onChange={() => setChosen(all ? new Set() : new Set([...chosen, ...shown.map((host) => host.alias)]))} />
        <span className="spacer" />
        <TextInput data-autofocus placeholder={t("add.filter")} aria-label={t("add.filter")} value={filter} onChange={(event) => setFilter(event.currentTarget.value)} />
      </div>
      <div className={css.importList}>
        {shown.slice(0, SHOWN).map((host) => (
          <div key={host.alias} className={css.importRow}>
            <Checkbox id={`import-${host.alias}`} checked={chosen.has(host.alias)} onChange={() => toggle(host.alias)} />
            <label htmlFor={`import-${host.alias}`} className="ellipsis">
              <strong>{oneLine(host.alias)}</strong> <NodeText text={`${host.input.user}@${host.input.host}:${host.input.port}`} mono />
              {host.input.jump.length > 0 && <span className="dim"> {t("add.via", { hops: oneLine(host.input.jump.join(" → ")) })}</span>}
            </label>
            {host.notApplied.length > 0 && <div className={css.notApplied}>{t("add.notApplied", { options: oneLine(host.notApplied.join(", ")) })}</div>}
          </div>
        ))}
        {shown.length > SHOWN && <div className="dim" style={{ padding: 6 }}>{t("add.narrow", { count: shown.length - SHOWN })}</div>}
      </div>
      <AddOutcomes outcomes={add.outcomes} />
      {add.error && <ErrorNote error={add.error} />}
      <div className={css.footer}>
        {add.busy && <Button variant="default" onClick={add.cancel}>{t("common.cancel")}</Button>}
        <Button disabled={inputs.length === 0} loading={add.busy} onClick={() => void add.run(inputs, (ids) => onAdded(ids, ids.length === inputs.length))}>
          {t("add.submitCount", { count: inputs.length })}
        </Button>
      </div>
    </div>
  );
}
