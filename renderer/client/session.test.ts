import { describe, expect, it, vi } from "vitest";
import { openSession, tokenOf } from "./session.js";

const TOKEN = "Zm9vYmFyYmF6cXV4MTIzNDU2";

describe("the token of the address", () => {
  it("is found as #token=… or bare, and never taken from a route", () => {
    expect(tokenOf(`#token=${TOKEN}`)).toBe(TOKEN);
    expect(tokenOf(`#${TOKEN}`)).toBe(TOKEN);
    expect(tokenOf("#/nodes")).toBeNull();
    expect(tokenOf("")).toBeNull();
    expect(tokenOf("#token=<script>")).toBeNull();
    expect(tokenOf("#token=short")).toBeNull();
  });

  it("is posted as JSON and taken out of the address before the answer comes", async () => {
    const history = { replaceState: vi.fn() };
    const fetcher = vi.fn(() => {
      expect(history.replaceState).toHaveBeenCalledWith(null, "", "/#/nodes");
      return Promise.resolve(new Response(null, { status: 204 }));
    });
    expect(await openSession({ hash: `#token=${TOKEN}`, pathname: "/", search: "" }, history, fetcher)).toBeNull();
    expect(fetcher).toHaveBeenCalledWith("/session", expect.objectContaining({ method: "POST", body: JSON.stringify({ token: TOKEN }) }));
  });

  it("says P104 when the host refuses it, and nothing when there is no host or no token", async () => {
    const location = { hash: `#token=${TOKEN}`, pathname: "/", search: "" };
    const history = { replaceState: () => undefined };
    expect((await openSession(location, history, () => Promise.resolve(new Response(null, { status: 401 }))))?.code).toBe("P104");
    expect(await openSession(location, history, () => Promise.reject(new TypeError("failed")))).toBeNull();
    const never = vi.fn();
    expect(await openSession({ ...location, hash: "#/topology" }, history, never)).toBeNull();
    expect(never).not.toHaveBeenCalled();
  });

  it("does not throw on a fragment with a broken escape", () => {
    expect(tokenOf("#token=%E0%A4%A")).toBeNull();
  });
});
