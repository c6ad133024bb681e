// What a page of another origin tries with the session of a dashboard that is open in the same browser.
// DASHBOARD is its address. The answers say what each attempt got.
async () => {
  const api = 'DASHBOARD/srv-applet-mgr/v0';
  const within = (work) => Promise.race([work, new Promise((_, late) => setTimeout(() => late(new Error('nothing came')), 3000))]);
  const outcome = async (work) => {
    try {
      return await within(work());
    } catch (error) {
      return `${error.name}: ${error.message}`;
    }
  };
  const answered = async (path, options) => {
    const answer = await fetch(api + path, options);
    return answer.status;
  };
  const all = { credentials: 'include' };
  const json = { 'Content-Type': 'application/json' };
  const form = (target) => Object.assign(document.createElement('form'), { method: 'post', enctype: 'text/plain', action: `${api}/project`, target });
  const framed = (address) => new Promise((settled) => {
    const frame = Object.assign(document.createElement('iframe'), { src: address });
    frame.onload = () => settled(frame.contentDocument ? 'readable' : 'closed to this page');
    document.body.append(frame);
  });
  return {
    read: await outcome(() => answered('/project')),
    write: await outcome(() => answered('/project', { method: 'POST', headers: json, body: '{"name": "by_fetch"}' })),
    readWithAll: await outcome(() => answered('/project', all)),
    writeWithAll: await outcome(() => answered('/project', { ...all, method: 'POST', body: '{"name": "by_text"}' })),
    form: await outcome(() => new Promise((settled) => {
      const frame = Object.assign(document.createElement('iframe'), { name: 'answer' });
      const sent = form('answer');
      sent.append(Object.assign(document.createElement('input'), { name: '{"name": "by_form", "description": "', value: '"}' }));
      document.body.append(frame, sent);
      frame.onload = () => settled('sent');
      sent.submit();
    })),
    socket: await outcome(() => new Promise((settled) => {
      const socket = new WebSocket('DASHBOARD/srv-applet-mgr/v0/stream'.replace('http', 'ws'));
      socket.onopen = () => settled('open');
      socket.onclose = () => settled('closed');
    })),
    frame: await outcome(() => framed('DASHBOARD/')),
    module: await outcome(() => import('DASHBOARD/SESSION_MODULE')),
    tabs: await outcome(() => new Promise((settled) => {
      const tabs = new BroadcastChannel('fieldbrook');
      tabs.onmessage = ({ data }) => settled(data);
      tabs.postMessage({ ask: true });
    })),
    opened: await outcome(async () => {
      const page = open('DASHBOARD/');
      for (;;) {
        page.sessionStorage.length; // that of about:blank, until the page is there
        await new Promise(requestAnimationFrame);
      }
    }),
  };
}
