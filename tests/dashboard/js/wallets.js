// Two wallets as extensions announce them (EIP-6963). `window.sign` is given by the test: it signs
// the hexadecimal text as EIP-191 says. ADDRESS is replaced by the address, in lower case.
(() => {
  const image = 'data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg"/>';
  const rejected = () => Object.assign(new Error('User rejected the request'), { code: 4001 });
  const make = (name, uuid, declines) => ({
    info: { uuid, name, icon: declines ? 'https://elsewhere.example/icon.png' : image, rdns: `test.${uuid}` },
    provider: {
      request: async ({ method, params }) => {
        if (method === 'eth_requestAccounts') return ['ADDRESS'];
        if (method === 'eth_chainId') return '0x1251';
        if (method === 'personal_sign' && declines) throw rejected();
        if (method === 'personal_sign') return window.sign(params[0]);
        throw Object.assign(new Error('unsupported'), { code: 4200 });
      },
    },
  });
  const announce = (wallet) => dispatchEvent(new CustomEvent('eip6963:announceProvider', { detail: Object.freeze(wallet) }));
  addEventListener('eip6963:requestProvider', () => announce(make('Test Wallet', 'first', false)));
  window.announceLate = () => announce(make('Shy Wallet', 'second', true));
})();
