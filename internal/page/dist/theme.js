(()=>{const e=document.documentElement;e.classList.add("script");try{const t=localStorage.getItem("mooring-theme");(t==="light"||t==="dark")&&(e.dataset.theme=t)}catch{}})();
