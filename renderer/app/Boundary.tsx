import { Component, type ReactNode } from "react";
import { Button } from "@mantine/core";
import { withTranslation, type WithTranslation } from "react-i18next";
import { RequestError, type ShownError } from "../client/page-error.js";
import { ErrorNote } from "../shared/ErrorNote.js";

interface Props extends WithTranslation { children: ReactNode }

/** A failing page shows its error in its own place; the rest of the console works on. */
class PageBoundary extends Component<Props, { error: ShownError | null }> {
  override state: { error: ShownError | null } = { error: null };
  static getDerivedStateFromError(thrown: unknown): { error: ShownError } {
    return { error: RequestError.of("P103", { detail: thrown instanceof Error ? thrown.message : String(thrown) }).view };
  }
  override componentDidCatch(thrown: unknown): void {
    console.error("A page failed", thrown);
  }
  override render(): ReactNode {
    if (!this.state.error) return this.props.children;
    return (
      <div style={{ padding: 16, maxWidth: 760 }}>
        <ErrorNote error={this.state.error} />
        <Button mt="sm" variant="default" onClick={() => this.setState({ error: null })}>{this.props.t("common.retry")}</Button>
      </div>
    );
  }
}
export const Boundary = withTranslation()(PageBoundary);
