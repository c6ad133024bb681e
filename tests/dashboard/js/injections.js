// What a script could try that came from outside; the names of the errors, in order.
() => {
  const outcome = (work) => {
    try {
      work();
      return window.ran ? 'ran' : 'no effect';
    } catch (error) {
      return error.name;
    }
  };
  const script = () => Object.assign(document.createElement('script'), { textContent: 'ran = 1' });
  return [
    outcome(() => document.body.append(script())),
    outcome(() => { document.body.innerHTML = '<img src=x onerror="ran = 1">'; }),
    outcome(() => { document.body.setAttribute('onclick', 'ran = 1'); document.body.click(); }),
    outcome(() => setTimeout('ran = 1')),
  ];
};
