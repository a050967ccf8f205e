import type { TFunction } from "i18next";
import { SETTINGS, type SettingName, type SettingValue } from "../../electron/contract/index.js";
import { bytes, duration } from "../shared/format.js";

/** A value as a person reads it: "on", "128 MiB", "not set". */
export function valueText(name: SettingName, value: SettingValue, t: TFunction): string {
  if (value === null) return t("settings.notSet");
  if (typeof value === "boolean") return t(value ? "settings.on" : "settings.off");
  const kind = SETTINGS[name];
  if (kind.kind === "number" && kind.unit === "bytes") return bytes(value);
  if (kind.kind === "number" && kind.unit === "ms") return value < 1000 ? `${value} ms` : duration(value);
  return String(value);
}

/** The value that all of `values` have, or undefined where they differ or there is none. */
export function common<T>(values: readonly T[]): T | undefined {
  return values.length > 0 && values.every((value) => value === values[0]) ? values[0] : undefined;
}

/** What was typed for a number, checked: undefined = no number that the setting takes. Empty text unsets it. */
export function parseValue(name: SettingName, text: string, parseSize: (text: string) => number | null): SettingValue | undefined {
  if (text.trim() === "") return null;
  const kind = SETTINGS[name];
  if (kind.kind !== "number") return undefined;
  const value = kind.unit === "bytes" ? parseSize(text.trim()) : /^\d{1,9}$/.test(text.trim()) ? Number(text.trim()) : null;
  if (value === null || value < kind.min || value > kind.max) return undefined;
  return kind.powerOfTwo && !Number.isInteger(Math.log2(value)) ? undefined : value;
}
