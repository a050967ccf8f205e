import { app, BrowserWindow, dialog, ipcMain, Menu, protocol, safeStorage, session, type IpcMainEvent, type IpcMainInvokeEvent } from "electron";
import { join } from "node:path";
import { MemorySecretKeeper } from "../fleet/index.js";
import { createHost, type Host } from "../host.js";
import { bundleDirOf, defaultDataDir, pageDirOf, productRoot } from "../paths.js";
import { CHANNEL } from "./desktop-channel.js";
import { desktopPolicy, isOurPage, isTrustedSender, keepsSecrets, mayUse, PAGE_URL, SCHEME } from "./desktop-policy.js";
import { newNonce, readPageFile, SAFE_HEADERS, withNonce } from "./page-files.js";
import { SecretFile } from "./secret-file.js";
import { Session } from "./session.js";

/** The desktop shell: a window, a menu, native dialogs, the keychain. Everything else is the host's. */

const root = productRoot();
const dataDir = app.commandLine.getSwitchValue("stepccl-data-dir") || defaultDataDir();
const bundleDir = app.commandLine.getSwitchValue("stepccl-bundle") || bundleDirOf(root);

app.enableSandbox();
app.setPath("userData", join(dataDir, "desktop"));
protocol.registerSchemesAsPrivileged([{ scheme: SCHEME, privileges: { standard: true, secure: true, supportFetchAPI: true } }]);

/** No page of ours leaves its address, opens a window, or embeds another. */
app.on("web-contents-created", (_event, contents) => {
  contents.on("will-navigate", (details) => { if (!isOurPage(details.url)) details.preventDefault(); });
  contents.on("will-redirect", (details) => details.preventDefault());
  contents.on("will-frame-navigate", (details) => { if (!details.isMainFrame || !isOurPage(details.url)) details.preventDefault(); });
  contents.on("will-attach-webview", (event) => event.preventDefault());
  contents.setWindowOpenHandler(() => ({ action: "deny" }));
});

function guardSession(): void {
  const own = session.defaultSession;
  own.setPermissionRequestHandler((_contents, permission, callback, details) => callback(mayUse(permission, details.requestingUrl)));
  own.setPermissionCheckHandler((_contents, permission, origin) => mayUse(permission, `${origin}/`));
  own.setDevicePermissionHandler(() => false);
  own.protocol.handle(SCHEME, async (request) => {
    const url = new URL(request.url);
    const file = isOurPage(request.url) && request.method === "GET" ? await readPageFile(pageDirOf(root), url.pathname) : null;
    if (!file) return new Response("Not found", { status: 404, headers: SAFE_HEADERS });
    const headers = { ...SAFE_HEADERS, "content-type": file.type };
    if (!file.type.startsWith("text/html")) return new Response(new Uint8Array(file.bytes), { headers });
    const nonce = newNonce();
    return new Response(new Uint8Array(withNonce(file.bytes, nonce)), { headers: { ...headers, "content-security-policy": desktopPolicy(nonce) } });
  });
}

function openWindow(host: Host): BrowserWindow {
  const window = new BrowserWindow({
    width: 1360, height: 860, minWidth: 720, minHeight: 480, show: false, title: "StepCCL Console",
    webPreferences: { preload: join(__dirname, "preload.cjs"), contextIsolation: true, sandbox: true, nodeIntegration: false, webviewTag: false, spellcheck: false },
  });
  const trusted = (event: IpcMainEvent | IpcMainInvokeEvent): boolean => isTrustedSender(event.senderFrame, !window.isDestroyed() && event.sender === window.webContents);
  let page = newPage();
  function newPage(): Session {
    return new Session(host.wire, {
      send: (text) => { if (!window.isDestroyed()) window.webContents.send(CHANNEL.toPage, text); },
      backlogBytes: () => 0,
      close: () => window.webContents.reload(),
    });
  }
  const onMessage = (event: IpcMainEvent, text: unknown): void => {
    if (!trusted(event)) return;
    if (typeof text === "string") page.receive(text);
    else page.refuse("the message is no text");
  };
  ipcMain.on(CHANNEL.toHost, onMessage);
  ipcMain.handle(CHANNEL.chooseFile, async (event) => {
    if (!trusted(event)) throw new Error("not allowed");
    const chosen = await dialog.showOpenDialog(window, { title: "Choose a private key", properties: ["openFile", "showHiddenFiles"] });
    return chosen.canceled ? null : (chosen.filePaths[0] ?? null);
  });
  // A page that is loaded again begins anew: what the last one asked for ends.
  window.webContents.on("did-start-navigation", (details) => {
    if (!details.isMainFrame || details.isSameDocument) return;
    page.close();
    page = newPage();
  });
  window.on("closed", () => {
    page.close();
    ipcMain.off(CHANNEL.toHost, onMessage);
    ipcMain.removeHandler(CHANNEL.chooseFile);
  });
  window.once("ready-to-show", () => window.show());
  void window.loadURL(PAGE_URL);
  return window;
}

function setMenu(): void {
  Menu.setApplicationMenu(Menu.buildFromTemplate([
    ...(process.platform === "darwin" ? [{ role: "appMenu" as const }] : [{ label: "&File", submenu: [{ role: "quit" as const }] }]),
    { role: "editMenu" }, { label: "&View", submenu: [{ role: "reload" }, { role: "resetZoom" }, { role: "zoomIn" }, { role: "zoomOut" }, { role: "togglefullscreen" }] }, { role: "windowMenu" },
  ]));
}

async function main(): Promise<void> {
  await app.whenReady();
  guardSession();
  setMenu();
  const backend = process.platform === "linux" ? safeStorage.getSelectedStorageBackend() : "system";
  const kept = keepsSecrets(backend) && (await safeStorage.isAsyncEncryptionAvailable());
  const secrets = kept
    ? new SecretFile(join(dataDir, "secrets.json"), {
      backend, seal: (text) => safeStorage.encryptStringAsync(text), open: async (sealed) => (await safeStorage.decryptStringAsync(sealed)).result,
    })
    : new MemorySecretKeeper();
  const host = await createHost({ dataDir, bundleDir, shell: "desktop", secrets, capabilities: { nativeFileDialog: true, keepsSecrets: kept } });
  let window: BrowserWindow | null = openWindow(host);
  window.on("closed", () => { window = null; });
  app.on("second-instance", () => {
    window ??= openWindow(host);
    if (window.isMinimized()) window.restore();
    window.focus();
  });
  app.on("activate", () => { window ??= openWindow(host); });
  app.on("window-all-closed", () => app.quit());
  let closing: Promise<void> | null = null;
  let closed = false;
  app.on("before-quit", (event) => {
    if (closed) return;
    event.preventDefault();
    closing ??= host.close().finally(() => {
      closed = true;
      app.quit();
    });
  });
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => app.quit());
}

if (app.requestSingleInstanceLock()) {
  main().catch((error: unknown) => {
    dialog.showErrorBox("StepCCL Console could not start", error instanceof Error ? error.message : String(error));
    app.exit(1);
  });
} else {
  app.quit();
}
